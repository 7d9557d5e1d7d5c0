"""What a person's answer does to a story: from the question's kind and a letter to one effect. Pure."""

from enum import StrEnum
from typing import assert_never

from runner.core.choose import Question, QuestionKind


class Effect(StrEnum):
    """What follows from an answer."""

    GO_ON = "go-on"
    RETRY = "retry"
    SKIP = "skip"
    ABORT = "abort"


def effect_of(question: Question, letter: str) -> Effect:
    """Tell what an answer means; options that only inform a session let it go on."""
    match question.kind:
        case QuestionKind.FAILURE | QuestionKind.RECOVERY:
            return {"A": Effect.RETRY, "B": Effect.SKIP}.get(letter, Effect.ABORT)
        case QuestionKind.CONFIDENCE | QuestionKind.BLOCKED | QuestionKind.PROMOTION:
            last = question.options[-1].letter
            return Effect.ABORT if letter == last else Effect.GO_ON
        case QuestionKind.DECISION:
            gives_up = question.option(letter).text.lower().startswith("abort")
            return Effect.ABORT if gives_up else Effect.GO_ON
        case QuestionKind.ROLLBACK | QuestionKind.TRACKER | QuestionKind.BOUNDARY:
            return Effect.GO_ON
        case _:
            assert_never(question.kind)


def concerns_session(question: Question) -> bool:
    """Tell whether the next session is told of the answer: who else was at work is none of its business."""
    return question.kind not in {QuestionKind.BLOCKED, QuestionKind.PROMOTION}


def words_for(question: Question, letter: str) -> str:
    """Say what was decided, for the record and for the next session."""
    return f"{question.title}: {letter}) {question.option(letter).text}"

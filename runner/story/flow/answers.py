"""What the user's answer does to a story: from the question's kind and a letter to one effect. Pure."""

from enum import StrEnum
from typing import assert_never

from runner.core.choose import Question, QuestionKind


class Effect(StrEnum):
    """What follows from an answer."""

    CONTINUE = "continue"
    RETRY = "retry"
    SKIP = "skip"
    ABORT = "abort"


def effect_of(question: Question, letter: str) -> Effect:
    """Return what an answer leads to; with options that only inform a session, the story continues."""
    match question.kind:
        case QuestionKind.FAILURE | QuestionKind.RECOVERY:
            return {"A": Effect.RETRY, "B": Effect.SKIP}.get(letter, Effect.ABORT)
        case QuestionKind.CONFIDENCE | QuestionKind.BLOCKED | QuestionKind.PROMOTION:
            last = question.options[-1].letter
            return Effect.ABORT if letter == last else Effect.CONTINUE
        case QuestionKind.DECISION:
            gives_up = question.option(letter).text.lower().startswith("abort")
            return Effect.ABORT if gives_up else Effect.CONTINUE
        case QuestionKind.ROLLBACK | QuestionKind.TRACKER | QuestionKind.BOUNDARY:
            return Effect.CONTINUE
        case _:
            assert_never(question.kind)


def concerns_session(question: Question) -> bool:
    """Return whether the next session needs the answer; other sessions do not concern it."""
    return question.kind not in {QuestionKind.BLOCKED, QuestionKind.PROMOTION}


def words_for(question: Question, letter: str) -> str:
    """Return what was decided, for the record and for the next session."""
    return f"{question.title}: {letter}) {question.option(letter).text}"

"""What the user's answer does to a story: from the question's kind and a letter to one effect. Pure."""

from enum import StrEnum
from typing import assert_never

from runner.core.choose import (
    LEAVE_UNDONE,
    MOVE_APART,
    SKIP_SUB_STEP,
    Question,
    QuestionKind,
    from_json,
)
from runner.core.limits.stuck import question_digest
from runner.core.model import Decision

PERSON, RECOMMENDED, EARLIER = "person", "recommended", "earlier"
"""Who gave an answer: the user, the unattended default, or the user in an earlier run."""


class Effect(StrEnum):
    """What follows from an answer."""

    CONTINUE = "continue"
    RETRY = "retry"
    SKIP = "skip"
    PAUSE = "pause"
    ABORT = "abort"
    MOVE = "move"


def effect_of(question: Question, letter: str) -> Effect:  # noqa: PLR0911  one return per kind of question
    """Return what an answer leads to; with options that only inform a session, the story continues."""
    if question.pauses == letter:
        return Effect.PAUSE
    match question.kind:
        case QuestionKind.FAILURE | QuestionKind.RECOVERY:
            if question.option(letter).text == SKIP_SUB_STEP:
                return Effect.RETRY  # the session learns of it; only it knows what comes after the sub-step
            if letter == question.options[-1].letter:
                return Effect.ABORT
            return Effect.RETRY if letter == "A" else Effect.SKIP
        case QuestionKind.PROMOTION:
            return {LEAVE_UNDONE: Effect.ABORT, MOVE_APART: Effect.MOVE}.get(letter, Effect.CONTINUE)
        case QuestionKind.CONFIDENCE | QuestionKind.BLOCKED:
            last = question.options[-1].letter
            return Effect.ABORT if letter == last else Effect.CONTINUE
        case QuestionKind.DECISION:
            gives_up = question.option(letter).text.lower().startswith("abort")
            return Effect.ABORT if gives_up else Effect.CONTINUE
        case QuestionKind.OVERWRITE:
            return Effect.SKIP if letter == question.options[-1].letter else Effect.CONTINUE
        case (
            QuestionKind.ROLLBACK
            | QuestionKind.SKIP
            | QuestionKind.TRACKER
            | QuestionKind.BOUNDARY
            | QuestionKind.LANDING
            | QuestionKind.REVIEW
        ):
            return Effect.CONTINUE
        case _:
            assert_never(question.kind)


_OF_OTHERS = frozenset(
    {QuestionKind.BLOCKED, QuestionKind.PROMOTION, QuestionKind.LANDING, QuestionKind.REVIEW}
)


def concerns_session(question: Question) -> bool:
    """Return whether the next session needs the answer; other sessions and boundaries do not concern it."""
    if question.kind is QuestionKind.BOUNDARY:
        return bool(question.pauses)
    return question.kind not in _OF_OTHERS


def words_for(question: Question, letter: str) -> str:
    """Return what was decided, for the record and for the next session."""
    return f"{question.title}: {letter}) {question.option(letter).text}"


def words_for_session(decision: Decision) -> str | None:
    """Return what a session learns of an answered decision; None if it does not concern the session."""
    if not decision.letter:
        return None
    question = from_json(decision.question)
    if not concerns_session(question):
        return None
    unasked = " (the recommended answer; the user was not asked)" if decision.by == RECOMMENDED else ""
    return words_for(question, decision.letter) + unasked


def settles(decision: Decision, question: Question, *, applied: bool) -> bool:
    """Whether an answer of an earlier run settles a question that is about to be asked.

    What an agent asked about the work is settled for good. Any other question is about its moment: only an
    answer that has had no effect yet counts.
    """
    if not decision.letter or decision.question.get("kind") != question.kind:
        return False
    same = question_digest(str(decision.question.get("title", ""))) == question_digest(question.title)
    return same and (question.kind is QuestionKind.DECISION or not applied)

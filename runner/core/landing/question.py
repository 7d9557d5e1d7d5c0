"""The question about a story that a landing left out, and what its answer means."""

from collections.abc import Mapping
from typing import Any

from runner.core.choose import Option, Question, QuestionKind, from_json
from runner.core.left_out.evidence import CONFLICT, DEPENDENCY, RESOLVE, RETRY, SKIP, LeftOut
from runner.core.model import Decision, StorySnapshot
from runner.core.text.names import one_line
from runner.core.text.screen import neutral, shorten

_LONGEST = 200
_WORDS = {
    RETRY: "Retry — its agent tries again on the new tip, with the reason in its prompt",
    RESOLVE: "Resolve — an agent resolves the conflict during the next `land`",
    SKIP: "Skip — leave it on its branch; `land` leaves it out until the branch moves",
}


def question_about(left: LeftOut, title: str) -> Question | None:
    """Return the question; None for a story that only waits for another one."""
    if left.why == DEPENDENCY:
        return None
    words = (RETRY, RESOLVE, SKIP) if left.why == CONFLICT and left.files else (RETRY, SKIP)
    options = tuple(
        Option(letter=letter, text=_WORDS[word], word=word)
        for letter, word in zip("ABC", words, strict=False)
    )
    return Question(
        kind=QuestionKind.LANDING,
        title=_line(f"{title} did not land on {left.onto}"),
        details=tuple(filter(None, map(_line, _details(left)))),
        options=options,
        recommendation="A",
        why="nothing is lost: the old tip is kept, and the result is verified like any story",
    )


def _details(left: LeftOut) -> list[str]:
    return [
        left.reason,
        f"Files in conflict: {', '.join(left.files)}" if left.files else "",
        f"Other stories: {', '.join(left.others)}" if left.others else "",
        f"Failing command: {left.command}" if left.command else "",
        *left.output,
        f"Log: {left.log}" if left.log else "",
    ]


def _line(text: str) -> str:
    return shorten(neutral(one_line(text)).strip(), _LONGEST).strip()


def is_about_landing(decision: Decision | None) -> bool:
    """Whether a question is about a story that a landing left out."""
    return decision is not None and decision.question.get("kind") == QuestionKind.LANDING


def chosen(story: StorySnapshot) -> str:
    """Return what the user has decided about a story that a landing left out; empty if nothing."""
    decision = story.decision
    if decision is None or not decision.letter or not is_about_landing(decision):
        return ""
    return word_of(decision.question, decision.letter)


def word_of(question: Mapping[str, Any], letter: str) -> str:
    """Return the word of an option."""
    return from_json(question).option(letter).word

"""What a search asks now, and what it will probably ask next, so that it can be verified already. Pure.

The search always asks the same after the same answers. So what it asks next is found by answering it once
more from the beginning, with what is known, and then with either answer to what is not.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from msgspec import Struct, field

from runner.core.landing.search import Answer, Found, Question, Search, Stories, Verify

Known: TypeAlias = Callable[[Question], Answer | None]
"""What is known without a verify run; None if a run has to show it, or if it is not worth finding out."""

GREEN_SHARE = 0.5
"""How likely an answer is green: the search splits so that both answers tell about the same."""


class Ahead(Struct, frozen=True, kw_only=True):
    """The end of a search with all that it had asked; or its question, then others, likely ones first.

    `conflicts` are sequences that it has met on the way, of which the last story does not merge.
    """

    found: Found | None = None
    asked: tuple[Verify, ...] = ()
    questions: tuple[Verify, ...] = ()
    conflicts: tuple[Stories, ...] = ()


class _Path(Struct, kw_only=True):
    """How far a search could be answered: its end or its question, and what it has met."""

    end: Found | Question | None = None
    asked: list[Verify] = field(default_factory=list)
    conflicts: list[Stories] = field(default_factory=list)


def look_ahead(begin: Callable[[], Search], known: Known, most: int) -> Ahead:
    """Return what a search asks, and what it may ask next: at most so many questions."""
    order = count()
    paths: list[tuple[float, int, dict[Verify, Answer]]] = [(-1.0, next(order), {})]
    questions: dict[Verify, None] = {}
    conflicts: tuple[Stories, ...] = ()
    # Paths may end, or meet a question twice, so their number is limited, too.
    for _ in range(2 * most):
        if not paths or len(questions) == most:
            break
        share, _, assumed = heappop(paths)
        path = _answered(begin(), known, assumed)
        if not assumed:
            conflicts = tuple(path.conflicts)
            if isinstance(path.end, Found):
                return Ahead(found=path.end, asked=tuple(path.asked), conflicts=conflicts)
        if not isinstance(path.end, Verify):
            continue
        questions.setdefault(path.end)
        for answer, part in ((Answer.GREEN, GREEN_SHARE), (Answer.RED, 1 - GREEN_SHARE)):
            heappush(paths, (share * part, next(order), {**assumed, path.end: answer}))
    return Ahead(questions=tuple(questions), conflicts=conflicts)


def _answered(search: Search, known: Known, assumed: Mapping[Verify, Answer]) -> _Path:
    """Answer a search as far as that is possible."""
    path = _Path()
    try:
        question = next(search)
        while True:
            answer = known(question)
            if isinstance(question, Verify):
                answer = answer or assumed.get(question)
                path.asked.append(question)
            elif answer is Answer.CONFLICT:
                path.conflicts.append(question.stories)
            if answer is None:
                path.end = question
                return path
            question = search.send(answer)
    except StopIteration as end:
        path.end = end.value
        return path

"""What a search asks now, and what it will probably ask next, so that it can be verified already. Pure.

The search always asks the same after the same answers. So what it asks next is found by answering it once
more from the beginning, with what is known, and then with either answer to what is not.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from msgspec import Struct

from runner.core.landing.search import Answer, Found, Question, Search, Verify

Known: TypeAlias = Callable[[Question], Answer | None]
"""What is known without a verify run; None if a run has to show it, or if it is not worth finding out."""

GREEN_SHARE = 0.5
"""How likely an answer is green: the search splits so that both answers tell about the same."""


class Ahead(Struct, frozen=True, kw_only=True):
    """The end of a search with all that it had asked; or its question, then others, likely ones first."""

    found: Found | None = None
    asked: tuple[Verify, ...] = ()
    questions: tuple[Verify, ...] = ()


def look_ahead(begin: Callable[[], Search], known: Known, most: int) -> Ahead:
    """Return what a search asks, and what it may ask next: at most so many questions."""
    order = count()
    paths: list[tuple[float, int, dict[Verify, Answer]]] = [(-1.0, next(order), {})]
    questions: dict[Verify, None] = {}
    # Paths may end, or meet a question twice, so their number is limited, too.
    for _ in range(2 * most):
        if not paths or len(questions) == most:
            break
        share, _, assumed = heappop(paths)
        end, asked = _answered(begin(), known, assumed)
        if isinstance(end, Found) and not assumed:
            return Ahead(found=end, asked=asked)
        if not isinstance(end, Verify):
            continue
        questions.setdefault(end)
        for answer, part in ((Answer.GREEN, GREEN_SHARE), (Answer.RED, 1 - GREEN_SHARE)):
            heappush(paths, (share * part, next(order), {**assumed, end: answer}))
    return Ahead(questions=tuple(questions))


def _answered(
    search: Search, known: Known, assumed: Mapping[Verify, Answer]
) -> tuple[Found | Question, tuple[Verify, ...]]:
    """Answer a search as far as that is possible; return its end or its question, and what it had asked."""
    asked: list[Verify] = []
    try:
        question = next(search)
        while True:
            answer = known(question)
            if isinstance(question, Verify):
                answer = answer or assumed.get(question)
                asked.append(question)
            if answer is None:
                return question, tuple(asked)
            question = search.send(answer)
    except StopIteration as end:
        found: Found = end.value
        return found, tuple(asked)

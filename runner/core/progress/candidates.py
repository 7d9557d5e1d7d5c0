"""Best of N: which candidate of a story comes next, and which one wins. Pure.

A candidate is one whole try at a story, in a worktree of its own, that knows nothing of those before it. One
with a failing gate never wins.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

ALWAYS = "always"


class Candidate(Struct, frozen=True, kw_only=True):
    """One whole try at a story, see its event in `core/events/candidates.py`; `chosen`: it is the result."""

    number: int
    agent: str
    verdict: str
    reason: str
    branch: str
    commit: str = ""
    commits: int = 0
    files: int = 0
    lines: int = 0
    hidden: str = ""
    weak: bool = False
    final: bool = False
    next: str = ""
    kill_switch: Mapping[str, str] | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    chosen: bool = False

    @property
    def passes(self) -> bool:
        """Whether no gate has failed, also none that it did not know of."""
        return self.verdict == "done" and self.hidden != "failed"


class Review(Struct, frozen=True, kw_only=True):
    """What a second agent said of the work: verdict `accept`, `again` or `none`, and why."""

    by: str
    verdict: str
    because: str = ""


def next_number(candidates: Sequence[Candidate], *, most: int, when: str) -> int | None:
    """Return the number of the candidate that is to start; None if the choice can be made.

    Without `ALWAYS` another one starts only while none has passed gates that say something.
    """
    last = candidates[-1]
    if last.number >= most or last.final:
        return None
    convincing = any(one.passes and not one.weak for one in candidates)
    return None if convincing and when != ALWAYS else last.number + 1


def winner(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate with the smallest difference among those that pass; None if none does."""
    passing = [one for one in candidates if one.passes]
    return min(passing, key=lambda one: (one.lines, one.files, one.number), default=None)

"""How certain the next step must be: the threshold, and what past selections say about it.

A learning says how sure a selector was of the mode it chose, and whether the session was a success. With
enough of them, the threshold can be derived: low enough to let through what usually works, high enough to
keep out what does not.
"""

from collections.abc import Sequence

from msgspec import Struct

from runner.core.work_settings import DEFAULT_THRESHOLD

DISCOURAGED_BELOW = 0.5
"""Below this a selector only suggests; to run its choices would be to run anything."""

ENOUGH_LEARNINGS = 20
LOWEST, HIGHEST = DISCOURAGED_BELOW, 0.95
WANTED_SHARE = 0.8
"""Which share of the selections at or above the threshold must have been right."""


class Accuracy(Struct, frozen=True, kw_only=True):
    """How sure a selection was, and whether it was right."""

    confidence: float
    right: bool


class Derived(Struct, frozen=True, kw_only=True):
    """A threshold, and where it comes from."""

    threshold: float
    because: str


def derived_threshold(learnings: Sequence[Accuracy]) -> Derived:
    """Return the lowest threshold, from 0.5 to 0.95, at or above which 80 % of the selections were right."""
    known = len(learnings)
    if known < ENOUGH_LEARNINGS:
        words = f"{known} of the {ENOUGH_LEARNINGS} accuracy learnings that it takes to derive it"
        return Derived(threshold=DEFAULT_THRESHOLD, because=f"the default, with {words}")
    reached = {one.confidence for one in learnings if LOWEST <= one.confidence <= HIGHEST}
    for candidate in sorted({LOWEST, *reached}):
        above = [one.right for one in learnings if one.confidence >= candidate]
        if above and sum(above) >= WANTED_SHARE * len(above):
            words = f"{sum(above)} of {len(above)} selections at or above it were right"
            return Derived(threshold=candidate, because=f"from {known} accuracy learnings: {words}")
    words = f"no lower threshold had {WANTED_SHARE:.0%} of its selections right"
    return Derived(threshold=HIGHEST, because=f"from {known} accuracy learnings: {words}")


def discouraged(threshold: float) -> str:
    """Return a warning about a threshold that lets guesses through; empty for any other."""
    if threshold >= DISCOURAGED_BELOW:
        return ""
    return (
        f"confidence-threshold {threshold:g} is below {DISCOURAGED_BELOW:g}: a selection of so little "
        "confidence is only a suggestion, and sessions would run in any mode; use 0.5 or more"
    )

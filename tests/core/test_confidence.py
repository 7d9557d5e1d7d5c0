"""The threshold that learnings lead to, and what is said about one that lets guesses through."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.limits.confidence import HIGHEST, LOWEST, Accuracy, derived_threshold, discouraged

RIGHT, WRONG = True, False


def learned(*selections: tuple[float, bool, int]) -> list[Accuracy]:
    """Return learnings: a confidence, whether it was right, and how often."""
    return [
        Accuracy(confidence=confidence, right=right)
        for confidence, right, times in selections
        for _ in range(times)
    ]


@pytest.mark.parametrize(
    ("selections", "threshold"),
    [
        ([(0.1, RIGHT, 19)], 0.85),
        ([(0.1, RIGHT, 20)], 0.95),
        ([(0.9, RIGHT, 20)], 0.5),
        ([(0.6, WRONG, 10), (0.7, RIGHT, 10)], 0.7),
        ([(0.6, WRONG, 2), (0.7, RIGHT, 18)], 0.5),
        ([(0.6, WRONG, 4), (0.7, RIGHT, 16)], 0.5),
        ([(0.6, WRONG, 5), (0.7, RIGHT, 16)], 0.7),
        ([(0.9, WRONG, 20)], 0.95),
        ([(0.9, WRONG, 20), (0.99, RIGHT, 2)], 0.95),
    ],
)
def test_the_lowest_threshold_above_which_most_were_right(
    selections: Sequence[tuple[float, bool, int]], threshold: float
) -> None:
    """Four of five must have been right; without enough learnings it is the default."""
    found = derived_threshold(learned(*selections))
    assert found.threshold == threshold
    assert found.because


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=20, max_size=60))
def test_a_derived_threshold_stays_within_its_bounds_and_keeps_its_promise(
    selections: list[tuple[float, bool]],
) -> None:
    """Whatever was learned, what it lets through was right four times of five, or it is the highest."""
    learnings = [Accuracy(confidence=confidence, right=right) for confidence, right in selections]
    threshold = derived_threshold(learnings).threshold
    assert LOWEST <= threshold <= HIGHEST
    above = [one.right for one in learnings if one.confidence >= threshold]
    assert threshold == HIGHEST or sum(above) >= 0.8 * len(above)


def test_a_threshold_below_a_half_is_warned_about() -> None:
    """From 0.5 on there is nothing to say."""
    assert "confidence-threshold 0.49 is below 0.5" in discouraged(0.49)
    assert discouraged(0.5) == ""

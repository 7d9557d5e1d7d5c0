"""Circles, judged by trees and failures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.limits.spiral import failure_digest, same_failure, undone_and_redone


@pytest.mark.parametrize(
    ("trees", "circle"),
    [
        ("", False),
        ("ab", False),
        ("aba", False),
        ("abab", True),
        ("aabbaabb", True),
        ("abcabc", False),
        ("xabab", True),
        ("ababc", False),
        ("aaaa", False),
        ("abcbc", True),
    ],
)
def test_a_change_undone_and_redone_is_a_circle(trees: str, circle: bool) -> None:  # noqa: FBT001  a table
    """Before, changed, undone, changed again: only then."""
    assert undone_and_redone(list(trees)) is circle


@given(st.lists(st.integers(), unique=True))
def test_ever_new_trees_are_no_circle(trees: list[int]) -> None:
    """Progress is never called a spiral."""
    assert not undone_and_redone([str(tree) for tree in trees])


def test_three_equal_failures_are_a_circle_and_fewer_are_not() -> None:
    """Only the newest three count."""
    assert same_failure(["a", "b", "b", "b"])
    assert not same_failure(["b", "b"])
    assert not same_failure(["b", "b", "a"])


def test_clocks_and_addresses_do_not_make_a_failure_new() -> None:
    """What differs from run to run without meaning anything is not looked at."""
    first = failure_digest("exit code 1", "12:01:02 FAILED at 0x7f00 in 0.31s, see /tmp/a1/log")
    second = failure_digest("exit code 1", "23:59:59  FAILED at 0x7abc in 12 seconds, see /tmp/b2/log")
    assert first == second


def test_fewer_failures_are_progress() -> None:
    """Counts are looked at: 5 failed tests are not 3."""
    assert failure_digest("exit code 1", "5 failed") != failure_digest("exit code 1", "3 failed")
    assert failure_digest("exit code 1", "x") != failure_digest("exit code 2", "x")

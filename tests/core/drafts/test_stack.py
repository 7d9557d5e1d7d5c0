"""Which branch the draft of a story is meant for."""

from hypothesis import given
from hypothesis import strategies as st

from runner.core.drafts.stack import below, in_order, parent_of
from runner.core.model import StoryId

A, B, C, D = (StoryId(name) for name in "abcd")
CHAIN = {A: (), B: (A,), C: (B,), D: (A, C)}


def test_a_draft_stands_on_the_parent_that_contains_the_others() -> None:
    """Of a chain that is its end; a parent that has landed does not count."""
    everything = {A, B, C, D}
    assert parent_of(A, CHAIN, everything) is None
    assert parent_of(C, CHAIN, everything) == B
    assert parent_of(D, CHAIN, everything) == C
    assert parent_of(B, CHAIN, everything - {A}) is None
    assert parent_of(D, CHAIN, {A, D}) == A


def test_of_unrelated_parents_neither_is_taken() -> None:
    """A draft on one of them would show the work of the other as its own, so it is meant for the target."""
    assert parent_of(C, {A: (), B: (), C: (A, B)}, {A, B, C}) is None


@given(st.lists(st.sampled_from([A, B, C, D]), unique=True))
def test_parents_come_first_in_any_order(names: list[StoryId]) -> None:
    """Nothing is lost, and each story is behind all that it builds on."""
    ordered = in_order(names, CHAIN)
    assert sorted(ordered) == sorted(names)
    for position, name in enumerate(ordered):
        assert not below(name, CHAIN).intersection(ordered[position:])

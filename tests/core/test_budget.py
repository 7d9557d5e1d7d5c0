"""Budgets with parts set aside: no session spends what another may still need."""

from hypothesis import given
from hypothesis import strategies as st

from runner.core.limits.budget import Amount, estimate, set_aside
from runner.core.model import Usage


def test_without_an_estimate_the_first_session_sets_everything_aside() -> None:
    """Three stories cannot all start on the last dollar: the second waits for the first."""
    first = set_aside(Amount(cost=1.0), Amount(), [], Amount())
    assert first == Amount(cost=1.0)
    assert set_aside(Amount(cost=1.0), Amount(), [first], Amount()) is None


def test_what_fits_is_set_aside_and_what_does_not_waits() -> None:
    """With an estimate as many start as the budget bears."""
    limit, expected = Amount(cost=1.0), Amount(cost=0.4)
    parts: list[Amount] = []
    for _ in range(2):
        part = set_aside(limit, Amount(), parts, expected)
        assert part == expected
        parts.append(part)
    assert set_aside(limit, Amount(), parts, expected) is None


def test_alone_a_session_gets_what_is_left() -> None:
    """A budget is used to its end, by one session at a time."""
    assert set_aside(Amount(cost=10.0), Amount(cost=9.5), [], Amount(cost=2.0)) == Amount(cost=0.5)


def test_tokens_and_dollars_must_both_fit() -> None:
    """One currency that is in others' hands is enough to wait."""
    limit, expected = Amount(tokens=100, cost=10.0), Amount(tokens=60, cost=1.0)
    held = set_aside(limit, Amount(), [], expected)
    assert held == expected
    assert set_aside(limit, Amount(), [held], expected) is None


def test_the_dearest_session_so_far_is_expected_again() -> None:
    """Before any ended the user's word counts; sessions that report nothing are expected to cost nothing."""
    assert estimate([], Amount(cost=2.0)) == Amount(cost=2.0)
    seen = [Usage(cost_usd=0.5, input_tokens=7), Usage(cost_usd=0.9)]
    assert estimate(seen, Amount(cost=2.0)) == Amount(cost=0.9, tokens=7)
    assert estimate([Usage()], Amount(cost=2.0)) == Amount(tokens=0, cost=0)


money = st.floats(0, 100, allow_nan=False)


@given(limit=money, used=money, reserved=st.lists(money, max_size=4), expected=st.none() | money)
def test_parts_never_exceed_the_budget(
    limit: float, used: float, reserved: list[float], expected: float | None
) -> None:
    """Whatever is set aside, all parts together stay within what is left, if they did before."""
    left = max(0.0, limit - used)
    if sum(reserved) > left:
        return
    part = set_aside(
        Amount(cost=limit), Amount(cost=used), [Amount(cost=each) for each in reserved], Amount(cost=expected)
    )
    if part is not None:
        assert part.cost is not None
        assert part.cost + sum(reserved) <= left + 1e-9

"""Budgets with parts set aside: no session starts on what another is expected to need."""

from hypothesis import given
from hypothesis import strategies as st

from runner.core.limits.budget import (
    Amount,
    Expected,
    Kind,
    Part,
    Spending,
    expect,
    guessed,
    set_aside,
    shortage,
    within,
)

MINE = Kind(agent="mine", model="big", step="Implement")
USUAL = Amount(tokens=1000.0, cost=1.0)


def held(reserved: float, allowance: float | None = None) -> Part:
    """Return what a running session holds, in dollars."""
    return Part(
        reserved=Amount(cost=reserved), allowance=Amount(cost=reserved if allowance is None else allowance)
    )


def cost(spent: float | None, kind: Kind = MINE) -> Spending:
    """Return what a session cost."""
    return Spending(kind=kind, amount=Amount(cost=spent))


def expected(*, run: list[Spending], past: list[Spending], said: float | None = None) -> tuple[object, str]:
    """Return what the next session is expected to cost, and why."""
    found = expect(MINE, run=run, past=past, said=Amount(cost=said), guess=Amount(cost=7.0))
    return found.amount.cost, found.basis


def test_what_fits_is_reserved_and_what_does_not_waits() -> None:
    """As many start as the budget bears."""
    limit, wanted = Amount(cost=1.0), Amount(cost=0.4)
    parts: list[Part] = []
    for _ in range(2):
        part = set_aside(limit, Amount(), parts, wanted)
        assert part is not None
        assert part.reserved == wanted
        parts.append(part)
    assert set_aside(limit, Amount(), parts, wanted) is None


def test_a_session_may_spend_all_that_is_really_left() -> None:
    """An expensive session is not cut off while there is money; what others need is reserved for them."""
    limit, wanted = Amount(cost=9.0), Amount(cost=1.0)
    parts: list[Part] = []
    for _ in range(3):
        part = set_aside(limit, Amount(), parts, wanted)
        assert part is not None
        parts.append(part)
    assert [part.allowance.cost for part in parts] == [9.0, 8.0, 7.0]
    assert set_aside(limit, Amount(cost=5.0), [held(1.0, 9.0)], wanted) == held(1.0, 3.0)
    assert within(Amount(cost=8.0), Amount(cost=2.0, tokens=10), Amount(cost=0.5)) == Amount(
        cost=1.5, tokens=10
    )
    assert within(Amount(cost=1.0), Amount(cost=2.0), Amount(cost=3.0)) == Amount(cost=0.0)


def test_alone_a_session_gets_what_is_left() -> None:
    """A budget is used to its end, by one session at a time."""
    part = set_aside(Amount(cost=10.0), Amount(cost=9.5), [], Amount(cost=2.0))
    assert part == held(0.5)


def test_tokens_and_dollars_must_both_fit() -> None:
    """One currency that is in others' hands is enough to wait, and is the one that is named."""
    limit, wanted = Amount(tokens=100, cost=10.0), Amount(tokens=60, cost=1.0)
    first = set_aside(limit, Amount(), [], wanted)
    assert first is not None
    assert set_aside(limit, Amount(), [first], wanted) is None
    assert shortage(limit, Amount(cost=2), [first], Expected(amount=wanted, basis="assumed")) == (
        "a session is expected to spend 60 tokens, and 40 tokens of 100 tokens is free "
        "(0 tokens spent, 60 tokens reserved for running sessions) (assumed)"
    )


def test_what_is_expected_comes_from_the_run_the_settings_the_past_or_a_guess() -> None:
    """The nearest evidence counts, and only of the same agent and model."""
    other = Kind(agent="mine", model="small", step="Implement")
    past = [cost(number / 10) for number in range(1, 11)]
    assert expected(run=[cost(0.5), cost(2.5), cost(9, other)], past=past, said=3) == (
        2.5,
        "the most in this run",
    )
    assert expected(run=[cost(9, other)], past=past, said=3) == (3, "by your settings")
    assert expected(run=[], past=[*past, cost(50, other)]) == (0.9, "from 10 earlier sessions")
    assert expected(run=[], past=[cost(4)]) == (4, "from 1 earlier session")
    assert expected(run=[], past=[]) == (7.0, "assumed: no earlier session shows it")


def test_sessions_of_the_same_step_say_more_once_there_are_three() -> None:
    """A step that is always expensive is expected to be so again."""
    plan = [cost(number, Kind(agent="mine", model="big", step="Plan")) for number in (20, 30, 40)]
    assert expected(run=[], past=[*plan, cost(1), cost(2)])[0] == 40
    assert expected(run=[], past=[*plan, cost(1), cost(2), cost(3)])[0] == 3


def test_sessions_that_report_nothing_are_expected_to_spend_nothing() -> None:
    """A budget cannot limit them, so it must not hold them up."""
    assert expected(run=[cost(None)], past=[cost(5)])[0] == 0
    assert expected(run=[], past=[cost(None)] * 3)[0] == 0
    assert expected(run=[], past=[cost(None)] * 2)[0] == 7.0, "two may have failed before they could report"


def test_a_guess_is_at_most_a_share_of_the_budget() -> None:
    """Whatever the budget, all slots can be filled before anything is known."""
    assert guessed(Amount(cost=30.0), 3, usual=USUAL) == USUAL
    assert guessed(Amount(cost=1.5, tokens=300), 3, usual=USUAL) == Amount(cost=0.5, tokens=100)


money = st.floats(0, 100, allow_nan=False)
parts = st.tuples(money, money).map(lambda pair: held(min(pair), max(pair)))


@given(limit=money, used=money, running=st.lists(parts, max_size=4), wanted=money)
def test_reserved_parts_never_exceed_the_budget(
    limit: float, used: float, running: list[Part], wanted: float
) -> None:
    """All reserved parts stay within what is left; a session may spend at least what is reserved for it."""
    left = max(0.0, limit - used)
    reserved = sum(part.reserved.cost or 0.0 for part in running)
    part = set_aside(Amount(cost=limit), Amount(cost=used), running, Amount(cost=wanted))
    if part is None:
        assert reserved > 0, "what runs alone never waits"
        return
    assert part.reserved.cost is not None
    assert part.allowance.cost is not None
    if reserved <= left:
        assert part.reserved.cost + reserved <= left + 1e-9
    assert part.reserved.cost <= part.allowance.cost + 1e-9
    assert part.allowance.cost <= max(left, part.reserved.cost) + 1e-9

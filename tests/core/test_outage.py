"""What follows when an agent's service fails."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.limits.agent_output import Fault
from runner.core.limits.outage import (
    LONGEST_BACKOFF,
    LONGEST_LIMIT,
    LONGEST_OUTAGE,
    MOST_OUTAGES,
    OutageFacts,
    Pause,
    Refusal,
    after_outage,
    remaining,
    soonest,
)

SERVICE = st.sampled_from([Fault.TRANSIENT, Fault.LIMIT])


@given(SERVICE, st.integers(0, MOST_OUTAGES - 1), st.floats(0, 1))
def test_waits_grow_and_stay_bounded(fault: Fault, outages: int, chance: float) -> None:
    """Without a time from the service the wait doubles up to its bound, and chance only shortens it."""
    found = after_outage(OutageFacts(fault=fault, at=1000.0, outages=outages, chance=chance))
    assert isinstance(found, Pause)
    whole = min(LONGEST_BACKOFF, 10.0 * 2**outages)
    assert whole / 2 <= found.until - 1000.0 <= whole
    assert found.everyone is (fault is Fault.LIMIT)


@given(SERVICE, st.floats(1, 20_000), st.floats(0, 1))
def test_what_the_service_says_about_waiting_is_respected(fault: Fault, wait: float, chance: float) -> None:
    """Nobody comes back before the named time, nor much later."""
    found = after_outage(OutageFacts(fault=fault, at=0.0, until=wait, chance=chance))
    assert isinstance(found, Pause)
    assert wait <= found.until <= wait + 5


@pytest.mark.parametrize(
    "facts",
    [
        OutageFacts(fault=Fault.TRANSIENT, at=100.0, outages=MOST_OUTAGES, since=0.0),
        OutageFacts(fault=Fault.TRANSIENT, at=LONGEST_OUTAGE + 1, outages=1, since=0.0),
    ],
)
def test_an_outage_is_borne_only_so_often_and_so_long(facts: OutageFacts) -> None:
    """Count and time are bounded; the refusal says how often it was tried."""
    found = after_outage(facts)
    assert isinstance(found, Refusal)
    assert f"{facts.outages + 1} times" in found.because


def test_a_pause_that_is_longer_than_any_is_over() -> None:
    """The clock was set back since it began; a story waits for no whole year."""
    assert [remaining(until, 1000.0) for until in (0.0, 900.0, 1060.0)] == [0.0, 0.0, 60.0]
    assert remaining(1000.0 + LONGEST_LIMIT, 1000.0) == LONGEST_LIMIT
    assert remaining(math.inf, 1000.0) == math.inf
    assert remaining(1000.0 + 365 * 86400, 1000.0) == 0.0


def test_a_permanent_fault_is_refused_at_once() -> None:
    """A bad key is not tried again; the agent's own words say why."""
    assert after_outage(OutageFacts(fault=Fault.PERMANENT, at=0.0)) == Refusal()


def test_a_lost_conversation_is_replaced_once() -> None:
    """What cannot be resumed is replaced immediately; a new one that is lost has failed like any other."""
    lost = OutageFacts(fault=Fault.LOST, at=5.0, resumed=True)
    assert after_outage(lost) == Pause(until=5.0, fresh=True)
    assert after_outage(OutageFacts(fault=Fault.LOST, at=5.0)) is None


def test_a_limit_is_waited_out_however_long_it_lasts() -> None:
    """Neither its length nor how often it was met fails the story; it is asked when the service says."""
    days = 5 * 86400.0
    met = OutageFacts(fault=Fault.LIMIT, at=9e5, outages=99, since=0.0, until=9e5 + days)
    assert after_outage(met) == Pause(until=9e5 + days, everyone=True)
    unnamed = after_outage(OutageFacts(fault=Fault.LIMIT, at=9e5, outages=10_000, since=0.0))
    assert unnamed == Pause(until=9e5 + LONGEST_BACKOFF, everyone=True)


@pytest.mark.parametrize(
    ("current", "free_at", "chosen"),
    [
        ("a", {}, "a"),
        ("a", {"a": 50.0}, "a"),
        ("a", {"a": 500.0}, "b"),
        ("b", {"b": 500.0}, "c"),
        ("c", {"c": 500.0, "a": math.inf}, "b"),
        ("a", {"a": 500.0, "b": 480.0, "c": 470.0}, "a"),
        ("a", {"a": 5000.0, "b": 900.0, "c": 600.0}, "c"),
    ],
)
def test_of_several_agents_the_next_one_that_is_free_much_sooner_works(
    current: str, free_at: dict[str, float], chosen: str
) -> None:
    """In the order of preference, from the current one on; a short wait is no reason to change."""
    assert soonest(("a", "b", "c"), current, free_at) == chosen

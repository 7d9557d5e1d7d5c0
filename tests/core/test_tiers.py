"""Tiers: the documented side of every edge, the worst signal wins, the window follows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.model import ResourceSample, Tier
from runner.core.settings import TierSettings, TierThresholds
from runner.core.tiers import GB, agents_per_wave, ceiling, evaluate, next_window

TABLE = TierSettings()


def sample(
    memory: float | None = None,
    swap: float | None = None,
    peers: int | None = None,
    pressure: float | None = None,
) -> ResourceSample:
    return ResourceSample(
        memory_available=None if memory is None else int(memory * GB),
        swap_used=None if swap is None else int(swap * GB),
        peers=peers,
        pressure_free_percent=pressure,
    )


def test_the_most_restrictive_signal_wins() -> None:
    """Acceptance 41: plenty of memory does not make up for seven peers."""
    verdict = evaluate(sample(8, 0, 7), TABLE)
    assert verdict.tier is Tier.CRITICAL
    assert verdict.reason == "7 other agent sessions"


@pytest.mark.parametrize(
    ("signals", "tier"),
    [
        (sample(memory=6), Tier.GREEN),
        (sample(memory=5.999), Tier.WARN),
        (sample(memory=4), Tier.WARN),
        (sample(memory=3.999), Tier.DEGRADED),
        (sample(memory=2), Tier.DEGRADED),
        (sample(memory=1.999), Tier.CRITICAL),
        (sample(memory=0), Tier.CRITICAL),
        (sample(swap=0), Tier.GREEN),
        (sample(swap=0.999), Tier.GREEN),
        (sample(swap=1), Tier.WARN),
        (sample(swap=1.999), Tier.WARN),
        (sample(swap=2), Tier.DEGRADED),
        (sample(swap=3), Tier.DEGRADED),
        (sample(swap=3.001), Tier.CRITICAL),
        (sample(peers=2), Tier.GREEN),
        (sample(peers=3), Tier.WARN),
        (sample(peers=4), Tier.WARN),
        (sample(peers=5), Tier.DEGRADED),
        (sample(peers=6), Tier.DEGRADED),
        (sample(peers=7), Tier.CRITICAL),
        (sample(pressure=30), Tier.GREEN),
        (sample(pressure=29.9), Tier.WARN),
        (sample(pressure=15), Tier.WARN),
        (sample(pressure=14.9), Tier.DEGRADED),
        (sample(pressure=5), Tier.DEGRADED),
        (sample(pressure=4.9), Tier.CRITICAL),
    ],
)
def test_each_edge_has_its_documented_side(signals: ResourceSample, tier: Tier) -> None:
    """Acceptance 42: 6, 4, 2 GB; 1, 2, 3 GB of swap; 2, 4, 6 peers; 30, 15, 5 percent."""
    assert evaluate(signals, TABLE).tier is tier


def test_nothing_known_is_a_tier_of_its_own_and_holds_nothing_back() -> None:
    """Acceptance 43: every signal unknown runs, and is marked unknown."""
    verdict = evaluate(ResourceSample(disk_free=1), TABLE)
    assert verdict.tier is Tier.UNKNOWN
    assert verdict.reason == "nothing is known about this machine"
    assert ceiling(verdict.tier, 7, 0) == 7


@pytest.mark.parametrize(
    ("signals", "reason"),
    [
        (sample(memory=3.19), "3.1 GB available"),
        (sample(memory=5.999), "5.9 GB available"),
        (sample(memory=8, swap=1.5), "1.5 GB of swap in use"),
        (sample(memory=5, swap=1.5, peers=1), "5.0 GB available, 1.5 GB of swap in use"),
        (sample(peers=1), "1 other agent session"),
        (sample(pressure=12.5), "12.5 % free of pressure"),
    ],
)
def test_the_reason_names_the_signals_that_decided(signals: ResourceSample, reason: str) -> None:
    """The reason never claims more than there is, and names only the worst signals."""
    assert evaluate(signals, TABLE).reason == reason


def test_thresholds_come_from_the_settings() -> None:
    """A table of the user's own moves the edges."""
    roomy = TierThresholds(memory_gb=1, swap_gb=9, peers=9, pressure_free_percent=1)
    table = TierSettings(green=roomy, warn=roomy, degraded=roomy)
    assert evaluate(sample(1, 8.9, 9, 1), table).tier is Tier.GREEN
    assert evaluate(sample(0.9, 0, 0, 100), table).tier is Tier.CRITICAL


def test_equal_thresholds_leave_a_tier_out() -> None:
    """A green row like the degraded one keeps its own rule: its swap threshold is not green."""
    row = TABLE.degraded
    assert evaluate(sample(swap=3), TierSettings(green=row, warn=row, degraded=row)).tier is Tier.DEGRADED


@given(
    st.floats(min_value=0, max_value=16), st.floats(min_value=0, max_value=6), st.integers(0, 9), st.data()
)
def test_less_is_never_better(memory: float, swap: float, peers: int, data: st.DataObject) -> None:
    """With less memory, more swap or more peers the tier never improves."""
    rank = list(Tier).index
    before = evaluate(sample(memory, swap, peers), TABLE)
    less = data.draw(st.floats(min_value=0, max_value=memory))
    more = data.draw(st.floats(min_value=swap, max_value=8))
    after = evaluate(sample(less, more, peers + data.draw(st.integers(0, 3))), TABLE)
    assert rank(after.tier) >= rank(before.tier)


@pytest.mark.parametrize(
    ("tier", "max_stories", "running", "window"),
    [
        (Tier.GREEN, 9, 0, 9),
        (Tier.UNKNOWN, 9, 3, 9),
        (Tier.WARN, 9, 9, 4),
        (Tier.WARN, 3, 0, 3),
        (Tier.DEGRADED, 9, 0, 2),
        (Tier.DEGRADED, 1, 0, 1),
        (Tier.CRITICAL, 9, 0, 1),
        (Tier.CRITICAL, 9, 1, 0),
        (Tier.CRITICAL, 9, 5, 0),
    ],
)
def test_the_ceiling_of_each_tier(tier: Tier, max_stories: int, running: int, window: int) -> None:
    """Acceptance 45: in tier critical nothing new starts, but one story alone may run."""
    assert ceiling(tier, max_stories, running) == window


def test_the_window_falls_at_once_and_rises_by_steps() -> None:
    """Acceptance 28: down in one tick, up one place a tick; the first window is the ceiling."""
    window = next_window(None, 5)
    assert window == 5
    window = next_window(window, 1)
    assert window == 1
    rising = []
    for _ in range(5):
        window = next_window(window, 4)
        rising.append(window)
    assert rising == [2, 3, 4, 4, 4]


@given(st.one_of(st.none(), st.integers(0, 50)), st.integers(0, 50))
def test_the_window_stays_within_its_bounds(current: int | None, limit: int) -> None:
    """The window never exceeds the ceiling and never jumps up."""
    window = next_window(current, limit)
    assert 0 <= window <= limit
    assert current is None or window <= current + 1


@pytest.mark.parametrize(
    ("tier", "configured", "agents"),
    [
        (Tier.GREEN, 6, 6),
        (Tier.UNKNOWN, 6, 6),
        (Tier.WARN, 6, 4),
        (Tier.WARN, 3, 3),
        (Tier.DEGRADED, 6, 2),
        (Tier.DEGRADED, 1, 1),
        (Tier.CRITICAL, 6, 0),
    ],
)
def test_agents_per_wave_follow_the_tier(tier: Tier, configured: int, agents: int) -> None:
    """Acceptance 46: the cap that a session is told."""
    assert agents_per_wave(tier, configured) == agents

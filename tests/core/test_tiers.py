"""Tiers: the documented side of every edge, the worst signal wins, and what each tier allows."""

from bisect import bisect_right
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from runner.core.model import Tier
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.tiers import GB, agents_per_wave, ceiling, evaluate, severity
from runner.core.settings import Settings
from runner.core.tier_settings import TierRow, TierSettings, TierThresholds

TABLE = TierSettings()
GREEN, WARN, DEGRADED, CRITICAL = Tier.GREEN, Tier.WARN, Tier.DEGRADED, Tier.CRITICAL
A_LITTLE = 0.001

# A second telling of the table, signal by signal: the values at which the next tier begins, from good to
# bad, in units of the sample; what should be plentiful is counted downward. The flag says whether an edge
# itself still belongs to the better tier.
EDGES: Mapping[str, tuple[tuple[float, bool], ...]] = {
    "memory_available": ((-6 * GB, True), (-4 * GB, True), (-2 * GB, True)),
    "swap_used": ((1 * GB, False), (2 * GB, False), (3 * GB, True)),
    "peers": ((2, True), (4, True), (6, True)),
    "pressure_free_percent": ((-30, True), (-15, True), (-5, True)),
    "disk_free": ((-5 * GB, True), (-2 * GB, True), (-1 * GB, True)),
    "inodes_free": ((-100_000, True), (-50_000, True), (-10_000, True)),
    "memory_stall": ((10, True), (30, True), (60, True)),
    "cpu_stall": ((80, True), (100, True), (100, True)),
    "io_stall": ((80, True), (100, True), (100, True)),
    "load_per_cpu": ((4, True), (1000, True), (1000, True)),
}
PLENTY = frozenset(name for name, edges in EDGES.items() if edges[0][0] < 0)
WHOLE = frozenset({"memory_available", "swap_used", "peers", "disk_free", "inodes_free"})
HIGHEST = {"peers": 9, "inodes_free": 200_000, "load_per_cpu": 1200}
TIERS = (GREEN, WARN, DEGRADED, CRITICAL)


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


def alone(name: str, value: float) -> ResourceSample:
    """Return a sample of one signal."""
    return ResourceSample(**{name: value})  # type: ignore[arg-type]  # as for every drawn sample


def expected(name: str, value: float) -> Tier:
    """Judge one signal by the second telling of the table."""
    badness = -value if name in PLENTY else value
    # An edge that still belongs to the better tier ends just behind its value.
    ends = [(edge, 1 if included else 0) for edge, included in EDGES[name]]
    return TIERS[bisect_right(ends, (badness, 0))]


@st.composite
def samples(draw: st.DrawFn) -> ResourceSample:
    """Draw a sample, with many values right at the edges."""
    values: dict[str, float | None] = {}
    for name, edges in EDGES.items():
        step = 1 if name in WHOLE else A_LITTLE
        edge = st.sampled_from([abs(edge) + by * step for edge, _ in edges for by in (-1, 0, 1)])
        highest = HIGHEST.get(name, 100 if name not in WHOLE else 16 * GB)
        spread = st.integers(0, highest) if name in WHOLE else st.floats(0, highest)
        values[name] = draw(st.none() | edge | spread)
    return ResourceSample(**values)  # type: ignore[arg-type]  # whole numbers where they must be


def test_every_signal_of_a_sample_is_in_the_table() -> None:
    """A signal that is measured counts."""
    assert set(ResourceSample.__struct_fields__) == set(EDGES)


@given(samples())
def test_the_worst_known_signal_decides(drawn: ResourceSample) -> None:
    """Acceptance 41, 42, 43: the verdict is the worst of what a second table says of each signal."""
    known = {name: value for name in EDGES if (value := getattr(drawn, name)) is not None}
    judged = [expected(name, value) for name, value in known.items()]
    verdict = evaluate(drawn, TABLE)
    assert verdict.tier is (max(judged, key=severity) if judged else Tier.UNKNOWN)
    assert verdict.reason


def test_the_most_restrictive_signal_wins() -> None:
    """Acceptance 41: plenty of memory does not make up for seven peers."""
    verdict = evaluate(sample(8, 0, 7), TABLE)
    assert verdict.tier is Tier.CRITICAL
    assert verdict.reason == "7 other agent sessions"


@pytest.mark.parametrize(
    ("signal", "values"),
    [
        ("memory_available", {6: GREEN, 5.999: WARN, 4: WARN, 3.999: DEGRADED, 2: DEGRADED, 1.999: CRITICAL}),
        ("swap_used", {0.999: GREEN, 1: WARN, 1.999: WARN, 2: DEGRADED, 3: DEGRADED, 3.001: CRITICAL}),
        ("peers", {2: GREEN, 3: WARN, 4: WARN, 5: DEGRADED, 6: DEGRADED, 7: CRITICAL}),
        (
            "pressure_free_percent",
            {30: GREEN, 29.9: WARN, 15: WARN, 14.9: DEGRADED, 5: DEGRADED, 4.9: CRITICAL},
        ),
        ("disk_free", {5: GREEN, 4.999: WARN, 2: WARN, 1.999: DEGRADED, 1: DEGRADED, 0.999: CRITICAL}),
        (
            "inodes_free",
            {
                100_000: GREEN,
                99_999: WARN,
                50_000: WARN,
                49_999: DEGRADED,
                10_000: DEGRADED,
                9_999: CRITICAL,
            },
        ),
        ("memory_stall", {10: GREEN, 10.01: WARN, 30: WARN, 30.01: DEGRADED, 60: DEGRADED, 60.01: CRITICAL}),
        ("cpu_stall", {80: GREEN, 80.01: WARN, 100: WARN}),
        ("io_stall", {80: GREEN, 80.01: WARN, 100: WARN}),
        ("load_per_cpu", {4: GREEN, 4.01: WARN, 900: WARN}),
    ],
)
def test_each_edge_has_its_documented_side(signal: str, values: dict[float, Tier]) -> None:
    """Acceptance 42: 6, 4, 2 GB; 1, 2, 3 GB of swap; 2, 4, 6 peers; 30, 15, 5 percent; and the others."""
    unit = GB if signal in {"memory_available", "swap_used", "disk_free"} else 1
    for value, tier in values.items():
        assert evaluate(alone(signal, value * unit), TABLE).tier is tier, value


def test_nothing_known_is_a_tier_of_its_own_and_holds_nothing_back() -> None:
    """Acceptance 43: every signal unknown runs, and is marked unknown."""
    verdict = evaluate(ResourceSample(), TABLE)
    assert verdict.tier is Tier.UNKNOWN
    assert verdict.reason == "no signal can be read"
    assert ceiling(verdict.tier, Settings(max_stories=7)) == 7


@pytest.mark.parametrize(
    ("signals", "reason"),
    [
        (sample(memory=3.19), "3.1 GB free"),
        (sample(memory=5.999), "5.9 GB free"),
        (sample(memory=8, swap=1.5), "1.5 GB of swap in use"),
        (sample(memory=5, swap=1.5, peers=1), "5.0 GB free, 1.5 GB of swap in use"),
        (sample(memory=8, swap=0, peers=1), "8.0 GB free"),
        (sample(peers=1), "1 other agent session"),
        (sample(pressure=12.5), "12.5 % free of pressure"),
        (ResourceSample(disk_free=int(1.59 * GB)), "1.5 GB of disk free"),
        (ResourceSample(inodes_free=1234), "1234 inodes free"),
        (ResourceSample(memory_stall=10.01), "10.1 % of the time waiting for memory"),
        (ResourceSample(cpu_stall=99), "99.0 % of the time waiting for the processor"),
        (ResourceSample(io_stall=99), "99.0 % of the time waiting for the disk"),
        (ResourceSample(load_per_cpu=7.25), "load 7.3 per processor"),
    ],
)
def test_the_reason_names_the_signals_that_decided(signals: ResourceSample, reason: str) -> None:
    """The reason never makes things look better than they are; where all is well it is short."""
    assert evaluate(signals, TABLE).reason == reason


@pytest.mark.parametrize("name", [item.name for item in fields(TierThresholds)])
def test_every_threshold_is_the_users(name: str) -> None:
    """Moving one row's threshold moves that edge; each column is read."""
    extreme = 0 if expected_direction(name) else 10**15
    table = TierSettings(
        green=replace(TABLE.green, **{name: extreme}),
        warn=replace(TABLE.warn, **{name: extreme}),
        degraded=replace(TABLE.degraded, **{name: extreme}),
    )
    worst = ResourceSample(
        memory_available=0,
        swap_used=9 * GB,
        peers=9,
        pressure_free_percent=0,
        disk_free=0,
        inodes_free=0,
        memory_stall=100,
        cpu_stall=100,
        io_stall=100,
        load_per_cpu=10**6,
    )
    before, after = (len(evaluate_each(worst, rows)) for rows in (TABLE, table))
    assert after == before - 1


def expected_direction(name: str) -> bool:
    """Return whether a threshold is of something that should be plentiful."""
    return name in {"memory_gb", "pressure_free_percent", "disk_gb", "inodes"}


def evaluate_each(machine: ResourceSample, table: TierSettings) -> list[str]:
    """Name the signals that are not green when they are looked at alone."""
    return [name for name in EDGES if evaluate(alone(name, getattr(machine, name)), table).tier is not GREEN]


def test_equal_thresholds_leave_a_tier_out() -> None:
    """A green row like the degraded one keeps its own rule: its swap threshold is not green."""
    row = TABLE.degraded
    assert evaluate(sample(swap=3), TierSettings(green=row, warn=row, degraded=row)).tier is Tier.DEGRADED


@pytest.mark.parametrize(
    ("tier", "max_stories", "stories"),
    [
        (Tier.GREEN, 9, 9),
        (Tier.UNKNOWN, 9, 9),
        (Tier.WARN, 9, 4),
        (Tier.WARN, 3, 3),
        (Tier.DEGRADED, 9, 2),
        (Tier.DEGRADED, 1, 1),
        (Tier.CRITICAL, 9, 1),
    ],
)
def test_the_ceiling_of_each_tier(tier: Tier, max_stories: int, stories: int) -> None:
    """Acceptance 45: in tier critical one story alone may run, so beside any other nothing new starts."""
    assert ceiling(tier, Settings(max_stories=max_stories)) == stories


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
    """Acceptance 46: the cap that a session gets."""
    assert agents_per_wave(tier, Settings(agents_per_wave=configured)) == agents


def test_the_caps_of_a_tier_are_settings() -> None:
    """A big machine may carry more stories and agents in a worse tier."""
    row: TierRow = replace(TABLE.warn, stories=7, agents=5)
    settings = Settings(
        max_stories=9, tiers=TierSettings(warn=row, degraded=replace(row, stories=6, agents=1))
    )
    assert (ceiling(WARN, settings), ceiling(DEGRADED, settings)) == (7, 6)
    assert (agents_per_wave(WARN, settings), agents_per_wave(DEGRADED, settings)) == (5, 1)

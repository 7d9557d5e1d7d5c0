"""How loaded the machine is: a sample gives a tier, and the tier limits how many stories and agents may run.

The most restrictive signal wins; an unknown signal restricts nothing. What should be plentiful (memory,
disk, inodes, time without pressure) belongs to a tier from its threshold upward; what should be low
(peers, stalls, load) up to and including it. Swap must stay below the threshold of `green` and `warn`,
and may reach that of `degraded`.
"""

import math
from collections.abc import Callable, Iterator
from typing import assert_never

from msgspec import Struct

from runner.core.model import Tier
from runner.core.schedule.resources import ResourceSample
from runner.core.settings import Settings
from runner.core.tier_settings import LITTLE_IS_GOOD, TierSettings

GB = 1024**3
_ROWS = (Tier.GREEN, Tier.WARN, Tier.DEGRADED, Tier.CRITICAL)


class TierVerdict(Struct, frozen=True, kw_only=True):
    """A tier, and the signals that decided it."""

    tier: Tier
    reason: str


def evaluate(sample: ResourceSample, settings: TierSettings) -> TierVerdict:
    """Judge a sample; when every signal is unknown, so is the tier, and nothing is held back."""
    signals = list(_judged(sample, settings))
    if not signals:
        return TierVerdict(tier=Tier.UNKNOWN, reason="no signal can be read")
    worst = max(row for row, _ in signals)
    deciding = [words for row, words in signals if row == worst]
    if _ROWS[worst] is Tier.GREEN:
        deciding = deciding[:1]  # when all is well, one figure is enough
    return TierVerdict(tier=_ROWS[worst], reason=", ".join(deciding))


def has_ample_disk(sample: ResourceSample, settings: TierSettings) -> bool:
    """Whether the disk alone would restrict nothing."""
    disk = ResourceSample(disk_free=sample.disk_free, inodes_free=sample.inodes_free)
    return evaluate(disk, settings).tier in {Tier.GREEN, Tier.UNKNOWN}


def ceiling(tier: Tier, settings: Settings) -> int:
    """Return how many stories the tier allows.

    Critical allows one: a story may start alone, and none beside another.
    """
    match tier:
        case Tier.GREEN | Tier.UNKNOWN:
            return settings.max_stories
        case Tier.WARN:
            return min(settings.tiers.warn.stories, settings.max_stories)
        case Tier.DEGRADED:
            return min(settings.tiers.degraded.stories, settings.max_stories)
        case Tier.CRITICAL:
            return 1
        case _:
            assert_never(tier)


def agents_per_wave(tier: Tier, settings: Settings) -> int:
    """Return how many agents a session may use in parallel; 0 means that it works alone."""
    match tier:
        case Tier.GREEN | Tier.UNKNOWN:
            return settings.agents_per_wave
        case Tier.WARN:
            return min(settings.tiers.warn.agents, settings.agents_per_wave)
        case Tier.DEGRADED:
            return min(settings.tiers.degraded.agents, settings.agents_per_wave)
        case Tier.CRITICAL:
            return 0
        case _:
            assert_never(tier)


def severity(tier: Tier) -> int:
    """Rank tiers: the higher, the more loaded the machine. Unknown holds nothing back."""
    return _ROWS.index(tier) if tier in _ROWS else -1


def gigabytes(number: float) -> str:
    """Return bytes as gigabytes, rounded down."""
    return f"{_floor(number / GB)} GB"


class _Signal(Struct, frozen=True, kw_only=True):
    """One signal: its field in the sample, its threshold, and its wording."""

    field: str
    threshold: str
    words: Callable[[float], str]
    unit: int = 1


_SIGNALS = (
    _Signal(
        field="memory_available",
        threshold="memory_gb",
        unit=GB,
        words=lambda bytes_: f"{gigabytes(bytes_)} free",
    ),
    _Signal(
        field="swap_used",
        threshold="swap_gb",
        unit=GB,
        words=lambda bytes_: f"{gigabytes(bytes_)} of swap in use",
    ),
    _Signal(
        field="peers",
        threshold="peers",
        words=lambda peers: f"{peers:g} other agent {'session' if peers == 1 else 'sessions'}",
    ),
    _Signal(
        field="pressure_free_percent",
        threshold="pressure_free_percent",
        words=lambda free: f"{_floor(free)} % free of pressure",
    ),
    _Signal(
        field="memory_stall",
        threshold="memory_stall_percent",
        words=lambda stall: f"{_ceil(stall)} % of the time waiting for memory",
    ),
    _Signal(
        field="disk_free",
        threshold="disk_gb",
        unit=GB,
        words=lambda bytes_: f"{gigabytes(bytes_)} of disk free",
    ),
    _Signal(
        field="inodes_free",
        threshold="inodes",
        words=lambda inodes: f"{inodes:.0f} inodes free",
    ),
    _Signal(
        field="cpu_stall",
        threshold="cpu_stall_percent",
        words=lambda stall: f"{_ceil(stall)} % of the time waiting for the processor",
    ),
    _Signal(
        field="io_stall",
        threshold="io_stall_percent",
        words=lambda stall: f"{_ceil(stall)} % of the time waiting for the disk",
    ),
    _Signal(
        field="load_per_cpu",
        threshold="load_per_cpu",
        words=lambda load: f"load {_ceil(load)} per processor",
    ),
)


def _judged(sample: ResourceSample, settings: TierSettings) -> Iterator[tuple[int, str]]:
    """Yield for every known signal its row in the table, and its wording."""
    for signal in _SIGNALS:
        value = getattr(sample, signal.field)
        if value is not None:
            yield _row(signal.threshold, value / signal.unit, settings), signal.words(value)


def _row(threshold: str, value: float, settings: TierSettings) -> int:
    """Return the index of the first row that holds, or the index after the last."""
    green, warn, degraded = (
        getattr(row, threshold) for row in (settings.green, settings.warn, settings.degraded)
    )
    # The documented exception: exclusive for the first two rows, inclusive for the third.
    if threshold == "swap_gb":
        holds = [value < green, value < warn, value <= degraded]
    elif threshold in LITTLE_IS_GOOD:
        holds = [value <= limit for limit in (green, warn, degraded)]
    else:
        holds = [value >= limit for limit in (green, warn, degraded)]
    return [*holds, True].index(True)


def _floor(number: float) -> str:
    """Round down, so that no text claims more than is available: 5.99 is not 6.0."""
    return f"{math.floor(number * 10) / 10:.1f}"


def _ceil(number: float) -> str:
    """Round up, so that no text understates what is too much: 10.01 is not 10.0."""
    return f"{math.ceil(number * 10) / 10:.1f}"

"""What the machine can bear: a sample gives a tier, the tier a ceiling, the ceiling a window.

The most restrictive signal wins; an unknown signal restricts nothing. Memory and free pressure
belong to a tier from its threshold upwards, peers up to and with it. Swap must stay below the
threshold of `green` and `warn`, and may reach that of `degraded`.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from runner.core.model import ResourceSample, Tier
from runner.core.settings import TierSettings

GB = 1024**3
_ROWS = (Tier.GREEN, Tier.WARN, Tier.DEGRADED, Tier.CRITICAL)
_WARN_STORIES, _DEGRADED_STORIES = 4, 2
_WARN_AGENTS, _DEGRADED_AGENTS = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A tier, and in words the signals that decided it."""

    tier: Tier
    reason: str


def evaluate(sample: ResourceSample, settings: TierSettings) -> Verdict:
    """Judge a sample; when every signal is unknown the tier is, and nothing is held back."""
    signals = list(_signals(sample, settings))
    if not signals:
        return Verdict(tier=Tier.UNKNOWN, reason="nothing is known about this machine")
    worst = max(row for row, _ in signals)
    return Verdict(tier=_ROWS[worst], reason=", ".join(words for row, words in signals if row == worst))


def ceiling(tier: Tier, max_stories: int, running: int) -> int:
    """Give the largest window that the tier allows; what runs already is never evicted."""
    match tier:
        case Tier.GREEN | Tier.UNKNOWN:
            return max_stories
        case Tier.WARN:
            return min(_WARN_STORIES, max_stories)
        case Tier.DEGRADED:
            return min(_DEGRADED_STORIES, max_stories)
        case Tier.CRITICAL:
            # One story alone may run. While any runs, no place that it leaves is filled.
            return 0 if running else 1
        case _:
            assert_never(tier)


def next_window(current: int | None, ceiling: int) -> int:
    """Follow the ceiling: down at once, up by one step a tick; the first window is the ceiling."""
    return ceiling if current is None else min(ceiling, current + 1)


def agents_per_wave(tier: Tier, configured: int) -> int:
    """Give how many agents a session may use at once; none means that it works alone."""
    match tier:
        case Tier.GREEN | Tier.UNKNOWN:
            return configured
        case Tier.WARN:
            return min(_WARN_AGENTS, configured)
        case Tier.DEGRADED:
            return min(_DEGRADED_AGENTS, configured)
        case Tier.CRITICAL:
            return 0
        case _:
            assert_never(tier)


def _signals(sample: ResourceSample, settings: TierSettings) -> Iterator[tuple[int, str]]:
    """Give for every known signal its row in the table, and the signal in words."""
    green, warn, degraded = rows = (settings.green, settings.warn, settings.degraded)
    if sample.memory_available is not None:
        memory = sample.memory_available / GB
        yield _row(memory >= row.memory_gb for row in rows), f"{_floor(memory)} GB available"
    if sample.swap_used is not None:
        swap = sample.swap_used / GB
        holds = (swap < green.swap_gb, swap < warn.swap_gb, swap <= degraded.swap_gb)
        yield _row(holds), f"{_floor(swap)} GB of swap in use"
    if sample.peers is not None:
        peers = sample.peers
        words = f"{peers} other agent {'session' if peers == 1 else 'sessions'}"
        yield _row(peers <= row.peers for row in rows), words
    if sample.pressure_free_percent is not None:
        free = sample.pressure_free_percent
        yield _row(free >= row.pressure_free_percent for row in rows), f"{_floor(free)} % free of pressure"


def _row(holds: Iterable[bool]) -> int:
    """Give the place of the first row that holds, or the place after the last."""
    return [*holds, True].index(True)


def _floor(number: float) -> str:
    """Round down, so that no text claims more than there is: 5.99 is not 6.0."""
    return f"{math.floor(number * 10) / 10:.1f}"

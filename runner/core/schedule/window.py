"""How many stories may run now: tier and memory give a limit, and the window follows it.

- The window shrinks immediately. It grows by one per sample, and only as far as each of the last few
  samples allowed, so that a signal which jitters around a threshold does not make it flap. The tier
  that is shown follows the same rule.
- It is a number of stories, not of free slots: a running story counts with all that it may still
  use, so stories that start between two samples never share the same free memory.
- It never evicts. A window below what runs means that nothing new starts.
- It is never below one, so that a backlog makes progress: one story alone may always run.
"""

from msgspec import Struct

from runner.core.model import Tier
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.tiers import GB, ceiling, evaluate, gigabytes, severity
from runner.core.settings import Settings

HOLD = 3
"""How many samples in a row must allow more before the window grows."""
FIXED = "fixed"


class Needs(Struct, frozen=True, kw_only=True):
    """Memory in bytes: what a story may use in the end, and what each running one uses now."""

    story: int = 0
    in_use: tuple[int, ...] = ()


class Limit(Struct, frozen=True, kw_only=True):
    """How many stories one sample of the machine allows, and why."""

    stories: int
    tier: Tier
    reason: str


class Window(Struct, frozen=True, kw_only=True):
    """How many stories may run, with the tier and the reason to show; `recent` are the last limits."""

    stories: int
    tier: Tier
    reason: str
    recent: tuple[Limit, ...]


def limit(sample: ResourceSample, needs: Needs, settings: Settings) -> Limit:
    """Judge one sample of the machine."""
    verdict = evaluate(sample, settings.tiers)
    if settings.window == FIXED:
        return Limit(stories=settings.max_stories, tier=verdict.tier, reason=f"{verdict.reason}, fixed")
    by_tier = ceiling(verdict.tier, settings)
    by_memory = _by_memory(sample.memory_available, needs, settings)
    if by_memory is None or by_memory >= by_tier:
        return Limit(stories=by_tier, tier=verdict.tier, reason=verdict.reason)
    reason = f"{gigabytes(needs.story)} per story, {gigabytes(sample.memory_available or 0)} free"
    return Limit(stories=by_memory, tier=verdict.tier, reason=reason)


def at_start(sample: ResourceSample, settings: Settings) -> Limit:
    """Judge the machine for a run that has not started, of which only the settings are known."""
    return limit(sample, Needs(story=least_need(settings)), settings)


def least_need(settings: Settings) -> int:
    """Return the memory that a story counts with before any was measured, in bytes; 0 ignores memory."""
    return int(settings.memory_per_story_gb * GB)


def first(allowed: Limit) -> Window:
    """Return the window at the start of a run: its limit."""
    return Window(stories=allowed.stories, tier=allowed.tier, reason=allowed.reason, recent=(allowed,))


def follow(window: Window, allowed: Limit) -> Window:
    """Return the window after one more sample."""
    recent = (*window.recent, allowed)[-HOLD:]
    # The minimum makes it shrink with the newest sample, and grow only when all of them allow it.
    held = min(each.stories for each in recent)
    stories = min(held, window.stories + 1)
    worst = max(recent, key=lambda each: severity(each.tier)).tier
    reason = next(each.reason for each in reversed(recent) if each.tier is worst)
    if stories < held:
        reason += f", rising to {held}"
    return Window(stories=stories, tier=worst, reason=reason, recent=recent)


def _by_memory(available: int | None, needs: Needs, settings: Settings) -> int | None:
    """Return how many stories fit into memory; None when that is unknown or not wanted.

    What is below the threshold of `critical` is kept in reserve.
    """
    if available is None or not needs.story:
        return None
    # What a running story may still grow by is no longer free, although it is not in use yet.
    promised = sum(max(0, needs.story - used) for used in needs.in_use)
    free = available - promised - int(settings.tiers.degraded.memory_gb * GB)
    return max(1, len(needs.in_use) + free // needs.story)

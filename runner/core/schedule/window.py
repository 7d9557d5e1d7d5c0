"""How many stories may run now: tier and memory give a limit, and the window follows it.

- The window falls at once. It rises by one a look, and only as far as every one of the last few
  looks allowed, so that a signal which jitters around an edge does not make it flap. The tier that
  is told follows the same rule.
- It is a number of stories, not of free places: what runs already counts with all that it may still
  come to use, so stories that start between two looks never share the same free memory.
- It never evicts. A window below what runs means that nothing new starts.
- It is never below one, so that a backlog gets on: one story alone may always run.
"""

from msgspec import Struct

from runner.core.model import ResourceSample, Tier
from runner.core.schedule.tiers import GB, ceiling, evaluate, gigabytes, severity
from runner.core.settings import Settings

HOLD = 3
"""How many looks in a row must allow more before the window rises."""
FIXED = "fixed"


class Needs(Struct, frozen=True, kw_only=True):
    """Memory in bytes: what a story may come to use, and what each running one uses now."""

    story: int = 0
    in_use: tuple[int, ...] = ()


class Limit(Struct, frozen=True, kw_only=True):
    """How many stories one look at the machine allows, and why."""

    stories: int
    tier: Tier
    reason: str


class Window(Struct, frozen=True, kw_only=True):
    """How many stories may run, with the tier and the reason to tell; `recent` are the last limits."""

    stories: int
    tier: Tier
    reason: str
    recent: tuple[Limit, ...]


def limit(sample: ResourceSample, needs: Needs, settings: Settings) -> Limit:
    """Judge one look at the machine."""
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
    """Judge the machine for a run that has not begun, of which nothing is known but its settings."""
    return limit(sample, Needs(story=least_need(settings)), settings)


def least_need(settings: Settings) -> int:
    """Give what a story counts with before any was measured, in bytes; 0 leaves memory out of it."""
    return int(settings.memory_per_story_gb * GB)


def first(allowed: Limit) -> Window:
    """Give the window of a run that begins: its limit."""
    return Window(stories=allowed.stories, tier=allowed.tier, reason=allowed.reason, recent=(allowed,))


def follow(window: Window, allowed: Limit) -> Window:
    """Give the window after one more look."""
    recent = (*window.recent, allowed)[-HOLD:]
    held = min(each.stories for each in recent)
    stories = min(held, window.stories + 1)
    worst = max(recent, key=lambda each: severity(each.tier)).tier
    reason = next(each.reason for each in reversed(recent) if each.tier is worst)
    if stories < held:
        reason += f", rising to {held}"
    return Window(stories=stories, tier=worst, reason=reason, recent=recent)


def _by_memory(available: int | None, needs: Needs, settings: Settings) -> int | None:
    """Give how many stories the memory bears; None when it is unknown or not asked about.

    What lies below the edge of `critical` is not given away.
    """
    if available is None or not needs.story:
        return None
    promised = sum(max(0, needs.story - used) for used in needs.in_use)
    free = available - promised - int(settings.tiers.degraded.memory_gb * GB)
    return max(1, len(needs.in_use) + free // needs.story)

"""The window: what limits it, that it shrinks fast and grows slowly, and that it never flaps or starves."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.model import Tier
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.tiers import GB, ceiling, evaluate, severity
from runner.core.schedule.window import HOLD, Limit, Needs, Window, at_start, first, follow, limit
from runner.core.settings import Settings


def allows(stories: int, tier: Tier = Tier.GREEN, reason: str = "why") -> Limit:
    return Limit(stories=stories, tier=tier, reason=reason)


def windows(*limits: Limit) -> list[Window]:
    """Return the window after each sample."""
    seen = [first(limits[0])]
    for one in limits[1:]:
        seen.append(follow(seen[-1], one))
    return seen


def sizes(*limits: int) -> list[int]:
    return [window.stories for window in windows(*(allows(stories) for stories in limits))]


def memory(gigabytes: float) -> ResourceSample:
    return ResourceSample(memory_available=math.ceil(gigabytes * GB))


def needs(story: float, *in_use: float) -> Needs:
    return Needs(story=int(story * GB), in_use=tuple(int(used * GB) for used in in_use))


def test_the_first_window_is_the_limit_and_a_fall_is_at_once() -> None:
    """Acceptance 28: down in one look, by any amount."""
    assert sizes(5, 1) == [5, 1]
    assert sizes(2, 2) == [2, 2]


def test_it_rises_by_steps_after_the_better_limit_has_held() -> None:
    """Three looks in a row must allow more; from then on one story a look."""
    assert sizes(1, 4, 4, 4, 4, 4, 4) == [1, 1, 1, 2, 3, 4, 4]


def test_it_rises_only_as_far_as_all_recent_looks_allowed() -> None:
    """One look that allowed less holds it back until it is forgotten."""
    assert sizes(1, 4, 4, 4, 2, 4, 4, 4, 4) == [1, 1, 1, 2, 2, 2, 2, 3, 4]


def test_the_tier_is_told_by_the_same_rule() -> None:
    """Worse immediately; better once it has held, with the reason of the tier that is shown."""
    low, high = allows(2, Tier.DEGRADED, "3.9 GB free"), allows(3, Tier.GREEN, "6.1 GB free")
    allowed = [
        (window.stories, window.tier, window.reason) for window in windows(high, low, high, high, high)
    ]
    assert allowed == [
        (3, Tier.GREEN, "6.1 GB free"),
        (2, Tier.DEGRADED, "3.9 GB free"),
        (2, Tier.DEGRADED, "3.9 GB free"),
        (2, Tier.DEGRADED, "3.9 GB free"),
        (3, Tier.GREEN, "6.1 GB free"),
    ]


def test_a_window_on_its_way_up_says_where_to() -> None:
    """Otherwise a green machine with a small window would look like a mistake."""
    (*_, last) = windows(allows(1, Tier.CRITICAL), *[allows(8, reason="9.0 GB free")] * HOLD)
    assert (last.stories, last.tier, last.reason) == (2, Tier.GREEN, "9.0 GB free, rising to 8")


LIMITS = st.lists(
    st.builds(allows, st.integers(1, 50), st.sampled_from(list(Tier)), st.just("why")),
    min_size=1,
    max_size=40,
)


@given(LIMITS)
def test_it_stays_within_its_bounds(limits: list[Limit]) -> None:
    """Never above the limit, never below one, up by at most one a look; the tier never better than it is."""
    seen = windows(*limits)
    for window, one in zip(seen, limits, strict=True):
        assert 1 <= window.stories <= one.stories
        assert severity(window.tier) >= severity(one.tier)
    assert all(after.stories <= before.stories + 1 for before, after in pairwise(seen))


@given(LIMITS)
def test_it_rises_only_on_what_has_held(limits: list[Limit]) -> None:
    """Every rise was allowed by all the looks before it that count."""
    seen = windows(*limits)
    for place in range(1, len(seen)):
        if seen[place].stories > seen[place - 1].stories:
            assert place >= HOLD
            held = limits[place - HOLD + 1 : place + 1]
            assert all(one.stories >= seen[place].stories for one in held)


@given(st.integers(2, 20), st.lists(st.integers(1, HOLD - 1), max_size=30), st.integers(1, 19))
def test_jitter_around_an_edge_does_not_make_it_flap(high: int, spells: list[int], drop: int) -> None:
    """A signal that is never good for long changes the window once, however long it lasts."""
    low = max(1, high - drop)
    looks = [high, low]
    for spell in spells:
        looks += [high] * spell + [low]
    seen = sizes(*looks)
    assert sum(1 for before, after in pairwise(seen) if before != after) == 1
    tiers = windows(*(allows(one, Tier.GREEN if one == high else Tier.WARN) for one in looks))
    assert sum(1 for before, after in pairwise(tiers) if before.tier is not after.tier) == 1


@given(LIMITS, st.integers(1, 50))
def test_a_limit_that_stays_is_reached(limits: list[Limit], stories: int) -> None:
    """Whatever came before, a steady machine gets all that it allows."""
    steady = [allows(stories)] * (HOLD + 50)
    assert windows(*limits, *steady)[-1].stories == stories


@pytest.mark.parametrize(
    ("sample", "wanted", "stories", "reason"),
    [
        (memory(12), needs(0.5), 8, "12.0 GB free"),
        (memory(3.1), needs(0.5), 2, "3.1 GB free"),
        (memory(8), needs(1.5), 4, "1.5 GB per story, 8.0 GB free"),
        (memory(4.9), needs(1.5, 1.5, 1.5), 3, "1.5 GB per story, 4.9 GB free"),
        (memory(8), needs(1.5, 0, 0), 4, "1.5 GB per story, 8.0 GB free"),
        (memory(8), needs(1.5, 0.5, 1.0), 5, "1.5 GB per story, 8.0 GB free"),
        (memory(7.9), needs(1.5, 0, 1.5, 1.5), 5, "1.5 GB per story, 7.9 GB free"),
        (memory(6.5), needs(20), 1, "20.0 GB per story, 6.5 GB free"),
        (memory(6.5), needs(4, 4, 0, 0), 2, "4.0 GB per story, 6.5 GB free"),
        (memory(1.5), needs(1.5, 1.5), 1, "1.5 GB free"),
        (memory(12), Needs(), 8, "12.0 GB free"),
        (ResourceSample(), needs(20), 8, "no signal can be read"),
        (ResourceSample(peers=0), needs(20, 20), 8, "0 other agent sessions"),
    ],
)
def test_memory_limits_what_may_run(sample: ResourceSample, wanted: Needs, stories: int, reason: str) -> None:
    """What runs counts with all it may still use; the edge of critical is not given away; unknown is free."""
    allowed = limit(sample, wanted, Settings(max_stories=8))
    assert (allowed.stories, allowed.reason) == (stories, reason)


def test_a_run_that_has_not_begun_counts_with_the_setting() -> None:
    """`memory-per-story-gb` is all that is known then; 0 leaves memory to the tiers."""
    assert at_start(memory(8), Settings(max_stories=50, memory_per_story_gb=2)).stories == 3
    assert at_start(memory(8), Settings(max_stories=50)).stories == 12
    assert at_start(memory(8), Settings(max_stories=50, memory_per_story_gb=0)).stories == 50


def test_a_fixed_window_does_not_follow() -> None:
    """Whatever the machine reports, only the tier is shown."""
    allowed = limit(memory(0.1), needs(9, 9), Settings(max_stories=8, window="fixed"))
    assert (allowed.stories, allowed.tier, allowed.reason) == (8, Tier.CRITICAL, "0.1 GB free, fixed")


@given(
    st.integers(0, 64 * GB),
    st.integers(0, 8 * GB),
    st.lists(st.integers(0, 8 * GB), max_size=12),
    st.integers(1, 50),
)
def test_a_limit_is_at_least_one_and_at_most_the_tiers(
    available: int, story: int, in_use: list[int], most: int
) -> None:
    """Acceptance 45: however little there is, one story alone may run."""
    settings = Settings(max_stories=most)
    sample = ResourceSample(memory_available=available)
    allowed = limit(sample, Needs(story=story, in_use=tuple(in_use)), settings)
    assert 1 <= allowed.stories <= ceiling(evaluate(sample, settings.tiers).tier, settings) <= most


@given(st.integers(0, 64), st.integers(1, 8), st.data())
def test_stories_never_share_the_same_free_memory(total: int, need: int, data: st.DataObject) -> None:
    """However stories start, grow and end between looks, all that run fit, unless one runs alone."""
    settings = Settings(max_stories=50)
    reserve = settings.tiers.degraded.memory_gb
    running: list[int] = []
    window: Window | None = None
    for _ in range(data.draw(st.integers(1, 12))):
        allowed = limit(
            ResourceSample(memory_available=max(0, total - sum(running)) * GB),
            needs(need, *running),
            settings,
        )
        window = first(allowed) if window is None else follow(window, allowed)
        for _ in range(data.draw(st.integers(0, 4))):  # between two looks
            running += [0] * max(0, window.stories - len(running))
            assert len(running) <= 1 or len(running) * need <= total - reserve
            running = [data.draw(st.integers(used, need)) for used in running]
            if data.draw(st.booleans()) and running:
                running.pop(data.draw(st.integers(0, len(running) - 1)))

"""How much longer stories and a run will take, and what they will spend, by what is known. Pure.

What is known of a story counts in this order: how long it took in earlier runs, the estimate of its author,
how long stories of the same agent took, in this run and before. With less than that its end is unknown, and
so is the end of a run that has to wait for it: nothing is made up.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from runner.core.model import RunSnapshot, SessionKind, Status, StoryId, StorySnapshot
from runner.core.outlook.waiting import Cause, waiting
from runner.core.schedule.graph import median
from runner.core.text.words import worked

ENOUGH = 3
"""How many other stories of an agent say how long one more of them takes."""
_MINUTE, _HOUR = 60.0, 3600.0
_WIDE = 1.5
"""From which ratio of its ends on a range is shown as one."""
_OPEN = frozenset({Status.WAITING, Status.QUEUED})


class Sample(Struct, frozen=True, kw_only=True):
    """What one story took that is done; None is unknown."""

    story_id: StoryId
    agent: str = ""
    seconds: float | None = None
    cost_usd: float | None = None
    tokens: int | None = None


class Range(Struct, frozen=True, kw_only=True):
    """An expected amount: what is likely, and between what it will probably be."""

    low: float
    likely: float
    high: float

    def __add__(self, other: "Range") -> "Range":
        return Range(low=self.low + other.low, likely=self.likely + other.likely, high=self.high + other.high)


class Outlook(Struct, frozen=True, kw_only=True):
    """What is expected of a run: seconds left, and what it will have spent in the end; None is unknown.

    `stories` and `cost` hold only stories of which it is known.
    """

    left: Range | None = None
    cost_usd: float | None = None
    tokens: float | None = None
    stories: Mapping[StoryId, Range] = field(default_factory=dict)
    cost: Mapping[StoryId, float] = field(default_factory=dict)


_NOTHING = Range(low=0.0, likely=0.0, high=0.0)


def outlook(run: RunSnapshot, past: Sequence[Sample], now: float) -> Outlook:
    """Return what is expected of a run; nothing of one that has ended."""
    if run.ended:
        return Outlook()
    samples = [*past, *samples_of(run)]
    stories = [story for story in run.stories.values() if not story.status.final]
    expected = {story.id: _seconds(story, samples, now) for story in stories}
    left = {name: found for name, found in expected.items() if found is not None}
    costs = {
        story.id: found
        for story in stories
        if (found := _spending(story, samples, lambda one: one.cost_usd, story.usage.cost_usd)) is not None
    }
    tokens = [_spending(story, samples, lambda one: one.tokens, story.usage.tokens) for story in stories]
    ended = [story for story in run.stories.values() if story.status.final]
    return Outlook(
        left=_run_left(run, stories, left, now),
        stories={name: found for name, found in left.items() if run.stories[name].status is Status.RUNNING},
        cost=costs,
        cost_usd=_total([costs.get(story.id) for story in stories], [one.usage.cost_usd for one in ended]),
        tokens=_total(tokens, [one.usage.tokens for one in ended]),
    )


def samples_of(run: RunSnapshot) -> list[Sample]:
    """Return what the stories of a run took that are done."""
    return [
        Sample(
            story_id=story.id,
            agent=agent_of(story),
            seconds=worked(story, story.ended_at or 0.0),
            cost_usd=story.usage.cost_usd,
            tokens=story.usage.tokens,
        )
        for story in run.stories.values()
        if story.status is Status.DONE and story.sessions
    ]


def agent_of(story: StorySnapshot) -> str:
    """Return the agent that worked on a story last; empty before its first session."""
    sessions = (one for one in reversed(story.sessions) if one.kind is SessionKind.WORK)
    return next((one.agent for one in sessions), "")


def left_words(left: Range | None) -> str:
    """Return a time that is left: `~12 min`, `8-15 min`, `<1 min`; empty if it is unknown."""
    if left is None:
        return ""
    if left.high < _MINUTE:
        return "<1 min"
    low, high = _minutes(left.low), _minutes(left.high)
    if left.high > _WIDE * max(left.low, _MINUTE) and high < _HOUR / _MINUTE:
        return f"{low}-{high} min"
    likely = _minutes(left.likely)
    if likely < _HOUR / _MINUTE:
        return f"~{likely} min"
    return f"~{likely // 60} h {likely % 60:02} min"


def _minutes(seconds: float) -> int:
    return max(1, round(seconds / _MINUTE))


def _seconds(story: StorySnapshot, samples: Sequence[Sample], now: float) -> Range | None:
    """Return how much longer a story works, given that it has worked for a while."""
    known = _known(story, samples, lambda one: one.seconds)
    if not known and story.estimate is not None:
        known = [story.estimate * _MINUTE]
    if not known:
        known = _alike(story, samples, lambda one: one.seconds)
    ran = worked(story, now) or 0.0
    # What took less than it has taken already says nothing about the rest.
    rest = sorted(each - ran for each in known if each > ran)
    return _range(rest) if rest else None


def _range(values: Sequence[float]) -> Range:
    """Return the middle half of sorted values."""
    number = len(values)
    return Range(low=values[number // 4], likely=median(values), high=values[number - 1 - number // 4])


def _known(
    story: StorySnapshot, samples: Iterable[Sample], amount: Callable[[Sample], float | None]
) -> list[float]:
    amounts = (amount(one) for one in samples if one.story_id == story.id)
    return [each for each in amounts if each is not None]


def _alike(
    story: StorySnapshot, samples: Iterable[Sample], amount: Callable[[Sample], float | None]
) -> list[float]:
    """Return what other stories took: those of its agent, or all before its first session."""
    agent = agent_of(story)
    amounts = (amount(one) for one in samples if not agent or one.agent == agent)
    found = [each for each in amounts if each is not None]
    return found if len(found) >= ENOUGH else []


def _spending(
    story: StorySnapshot,
    samples: Sequence[Sample],
    amount: Callable[[Sample], float | None],
    spent: float | None,
) -> float | None:
    """Return what a story will have spent in the end; it cannot be less than what it has spent."""
    known = _known(story, samples, amount) or _alike(story, samples, amount)
    return max(median(known), spent or 0.0) if known else None


def _total(expected: Sequence[float | None], spent: Iterable[float | None]) -> float | None:
    known = [each for each in expected if each is not None]
    if not known or len(known) < len(expected):
        return None
    return sum(known) + sum(each for each in spent if each is not None)


def _run_left(
    run: RunSnapshot, stories: Sequence[StorySnapshot], left: Mapping[StoryId, Range], now: float
) -> Range | None:
    """Return how long until the last story ends that can run; None if any of them is unknown."""
    running = [story for story in stories if story.status is Status.RUNNING]
    ahead = [] if run.kill_switch else _startable(run)
    if not running and not ahead:
        return None
    held = any(_is_held(story, run, now) for story in (*running, *ahead))
    if held or any(story.id not in left for story in (*running, *ahead)):
        return None
    ends = [_last_end(run, running, ahead, left, now, pick=pick) for pick in ("low", "likely", "high")]
    return Range(low=ends[0], likely=ends[1], high=ends[2])


def _is_held(story: StorySnapshot, run: RunSnapshot, now: float) -> bool:
    """Whether a story waits for something whose end is unknown."""
    found = waiting(story, run, now)
    return found is not None and found.cause in {Cause.YOU, Cause.PAUSE, Cause.BUDGET}


def _startable(run: RunSnapshot) -> list[StorySnapshot]:
    """Return the stories that will still start: not those behind one that will not be done."""
    found: dict[StoryId, StorySnapshot] = {}
    for story in run.stories.values():
        if story.status not in _OPEN:
            continue
        needs = [run.stories[name] for name in story.depends_on if name in run.stories]
        coming = (each.id in found or each.status in {Status.RUNNING, Status.DONE} for each in needs)
        fine = (each.status is Status.NO_WORK and each.allow_no_change for each in needs)
        if all(one or other for one, other in zip(coming, fine, strict=True)):
            found[story.id] = story
    return list(found.values())


def _last_end(
    run: RunSnapshot,
    running: Sequence[StorySnapshot],
    ahead: Sequence[StorySnapshot],
    left: Mapping[StoryId, Range],
    now: float,
    *,
    pick: str,
) -> float:
    """Let the stories take the slots in their order; return when the last one ends, in seconds from now."""
    ends: dict[StoryId, float] = {}
    slots: list[float] = []
    for story in running:
        found = waiting(story, run, now)
        until = max(0.0, found.until - now) if found is not None and found.until else 0.0
        ends[story.id] = until + getattr(left[story.id], pick)
        slots.append(ends[story.id])
    slots += [0.0] * (max(1, run.window) - len(slots))
    heapq.heapify(slots)
    while len(slots) > max(1, run.window):  # the window has shrunk: the first slots are not given again
        heapq.heappop(slots)
    for story in ahead:
        free = heapq.heappop(slots)
        ready = max((ends.get(name, 0.0) for name in story.depends_on), default=0.0)
        ends[story.id] = max(free, ready) + getattr(left[story.id], pick)
        heapq.heappush(slots, ends[story.id])
    return max(ends.values(), default=0.0)

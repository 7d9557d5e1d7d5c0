"""The order of the backlog: dependencies first, then the urgent, then the critical path, then by id.

Among equally urgent stories the one with the longest chain behind it starts first, since the run can
end no sooner than that chain. The same stories give the same order however they were read. Ids are
unique, which the reader of the stories has checked. An arrow `a → b` reads "a depends on b".
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from runner.core.errors import BacklogError
from runner.core.model import Story, StoryId
from runner.core.text.names import did_you_mean_story, shown


def ordered(stories: Iterable[Story], durations: Mapping[StoryId, float] | None = None) -> tuple[Story, ...]:
    """Return the start order; refuse unknown dependencies, self-dependencies and cycles.

    A dependency is as urgent as the most urgent story that waits for it. Without `durations` all stories
    count as equally long.
    """
    by_id = {story.id: story for story in sorted(stories, key=lambda story: story.id)}
    _check_dependencies(by_id)
    urgency = _urgencies(by_id)
    chains = _chains(by_id, _topological(by_id, key=lambda name: name), durations or {})
    order = _topological(by_id, key=lambda name: (-urgency[name], -chains[name], name))
    return tuple(by_id[name] for name in order)


def expected_durations(
    stories: Iterable[Story], past: Mapping[StoryId, Sequence[float]]
) -> dict[StoryId, float]:
    """Return what each story will take, in minutes; the median of the others where nothing is known.

    A story's own estimate counts, else the median of `past`, what it took before. Where nothing is known
    about any story, the answer is empty.
    """
    listed = list(stories)
    known = {
        story.id: story.estimate if story.estimate is not None else median(past[story.id])
        for story in listed
        if story.estimate is not None or past.get(story.id)
    }
    usual = median(known.values()) if known else 0.0
    return {story.id: known.get(story.id, usual) for story in listed} if known else {}


def median(values: Iterable[float]) -> float:
    """Return the median; `statistics` takes longer to load than all of this module's work."""
    found = sorted(values)
    return (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2


def critical_path(stories: Sequence[Story], durations: Mapping[StoryId, float]) -> dict[StoryId, float]:
    """Return the stories of the longest chain, each with the time from its start to the end of the chain.

    Dependencies outside of `stories` count as done. Where all chains are equally long, none is critical.
    """
    inside = {story.id for story in stories}
    by_id = {
        story.id: replace(story, depends_on=tuple(name for name in story.depends_on if name in inside))
        for story in stories
    }
    chains = _chains(by_id, _topological(by_id, key=lambda name: name), durations)
    if len(set(chains.values())) <= 1:
        return {}
    waiting = _waiting(by_id.values())
    path: dict[StoryId, float] = {}
    following = sorted(name for name, story in by_id.items() if not story.depends_on)
    while following:
        longest = max(following, key=lambda name: chains[name])
        path[longest] = chains[longest]
        following = sorted(waiting.get(longest, ()))
    return path


def waves(stories: Iterable[Story]) -> tuple[tuple[StoryId, ...], ...]:
    """Group the stories by how many must be done one after another before each can start."""
    depth: dict[StoryId, int] = {}
    for story in ordered(stories):
        depth[story.id] = 1 + max((depth[name] for name in story.depends_on), default=-1)
    count = 1 + max(depth.values(), default=-1)
    return tuple(tuple(name for name, level in depth.items() if level == wave) for wave in range(count))


def closure(stories: Sequence[Story], only: Iterable[str]) -> tuple[Story, ...]:
    """Keep the named stories and what they depend on, in the given order."""
    by_id = {str(story.id): story for story in stories}
    wanted: set[str] = set()
    pending: list[str] = []
    for name in only:
        if name not in by_id:
            raise BacklogError(
                f"no story {shown(name)} in the backlog",
                hint=did_you_mean_story(name, stories) or "`autopilot-multi plan` lists the stories.",
            )
        pending.append(name)
    while pending:
        name = pending.pop()
        if name in wanted:
            continue
        wanted.add(name)
        pending.extend(item for item in by_id[name].depends_on if item in by_id)
    return tuple(story for story in stories if story.id in wanted)


def dependents(stories: Iterable[Story], story_id: StoryId) -> tuple[StoryId, ...]:
    """Return all stories that wait for this one, directly or through others, sorted by id."""
    waiting = _waiting(stories)
    found: set[StoryId] = set()
    pending = [story_id]
    while pending:
        for name in waiting.get(pending.pop(), ()):
            if name not in found:
                found.add(name)
                pending.append(name)
    return tuple(sorted(found - {story_id}))


def _check_dependencies(by_id: dict[StoryId, Story]) -> None:
    for story in by_id.values():
        where = f" ({story.source})" if story.source else ""
        if story.id in story.depends_on:
            raise BacklogError(
                f"story {story.id}{where} depends on itself",
                hint=f"remove '{story.id}' from its depends_on.",
            )
        for name in story.depends_on:
            if name not in by_id:
                others = (other for other in by_id.values() if other is not story)
                raise BacklogError(
                    f"story {story.id}{where} depends on {shown(name)}, which is not in the backlog",
                    hint=did_you_mean_story(name, others)
                    or f"add the story {shown(name)} to the run, or remove it from depends_on.",
                )


def _waiting(stories: Iterable[Story]) -> dict[StoryId, list[StoryId]]:
    waiting: dict[StoryId, list[StoryId]] = {}
    for story in stories:
        for name in story.depends_on:
            waiting.setdefault(name, []).append(story.id)
    return waiting


def _urgencies(by_id: dict[StoryId, Story]) -> dict[StoryId, int]:
    """Return for each story the highest priority among itself and what waits for it, cycles or not."""
    urgency: dict[StoryId, int] = {}
    # The most urgent first, so that the first visit sets a story's urgency and none is walked twice.
    for story in sorted(by_id.values(), key=lambda story: -story.priority):
        pending = [story.id]
        while pending:
            name = pending.pop()
            if name not in urgency:
                urgency[name] = story.priority
                pending.extend(by_id[name].depends_on)
    return urgency


def _chains(
    by_id: Mapping[StoryId, Story], order: Sequence[StoryId], durations: Mapping[StoryId, float]
) -> dict[StoryId, float]:
    """Return for each story the longest time from its start to the end of all that waits for it."""
    chains: dict[StoryId, float] = {}
    behind: dict[StoryId, float] = {}
    for name in reversed(order):
        chains[name] = durations.get(name, 1.0) + behind.get(name, 0.0)
        for needed in by_id[name].depends_on:
            behind[needed] = max(behind.get(needed, 0.0), chains[name])
    return chains


def _topological(by_id: Mapping[StoryId, Story], key: Callable[[StoryId], Any]) -> list[StoryId]:
    """Put dependencies first; among those that could come next, the least `key`."""
    missing = {name: len(set(story.depends_on)) for name, story in by_id.items()}
    # Sets, since a story may name the same dependency twice.
    waiting = {name: set(items) for name, items in _waiting(by_id.values()).items()}
    ready = [(key(name), name) for name, count in missing.items() if count == 0]
    heapq.heapify(ready)
    chain: list[StoryId] = []
    while ready:
        _, name = heapq.heappop(ready)
        chain.append(name)
        for waiter in waiting.get(name, ()):
            missing[waiter] -= 1
            if missing[waiter] == 0:
                heapq.heappush(ready, (key(waiter), waiter))
    if len(chain) < len(by_id):
        members = _cycle(by_id, left=set(by_id) - set(chain))
        raise BacklogError(
            f"stories wait for each other: {' → '.join(members)}",
            hint="an arrow reads 'depends on'; remove one of these dependencies.",
        )
    return chain


def _cycle(by_id: Mapping[StoryId, Story], *, left: set[StoryId]) -> list[StoryId]:
    """Find one cycle among the stories that never became ready, from its smallest id on."""
    path = [min(left)]
    while True:
        # A story that never became ready has a dependency that never did, so the walk always continues.
        following = min(name for name in by_id[path[-1]].depends_on if name in left)
        if following in path:
            members = path[path.index(following) :]
            first = members.index(min(members))
            return [*members[first:], *members[:first], members[first]]
        path.append(following)

"""The order of the backlog: dependencies first, then the urgent, then by id.

The same stories give the same order however they were read. Ids are unique, which the reader of
the stories has checked. An arrow `a → b` reads "a depends on b".
"""

import heapq
from collections.abc import Iterable, Sequence

from runner.core.errors import BacklogError
from runner.core.model import Story, StoryId
from runner.core.names import did_you_mean


def ordered(stories: Iterable[Story]) -> tuple[Story, ...]:
    """Give the start order; refuse unknown dependencies, self-dependencies and cycles.

    A dependency is as urgent as the most urgent story that waits for it.
    """
    by_id = {story.id: story for story in sorted(stories, key=lambda story: story.id)}
    _check_dependencies(by_id)
    urgency = _urgencies(by_id)
    chain = _topological(by_id, urgency)
    return tuple(by_id[name] for name in chain)


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
                f"there is no story '{name}' in the backlog",
                hint=did_you_mean(name, by_id) or "`autopilot-multi plan` lists the stories.",
            )
        pending.append(name)
    while pending:
        name = pending.pop()
        if name in wanted:
            continue
        wanted.add(name)
        pending.extend(item for item in by_id[name].depends_on if item in by_id)
    return tuple(story for story in stories if story.id in wanted)


def dependants(stories: Iterable[Story], story_id: StoryId) -> tuple[StoryId, ...]:
    """Name all stories that wait for this one, directly or through others, sorted by id."""
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
                nearest = did_you_mean(name, by_id)
                raise BacklogError(
                    f"story {story.id}{where} depends on '{name}', which is not in the backlog",
                    hint=nearest or f"add the story '{name}' to the run, or remove it from depends_on.",
                )


def _waiting(stories: Iterable[Story]) -> dict[StoryId, list[StoryId]]:
    waiting: dict[StoryId, list[StoryId]] = {}
    for story in stories:
        for name in story.depends_on:
            waiting.setdefault(name, []).append(story.id)
    return waiting


def _urgencies(by_id: dict[StoryId, Story]) -> dict[StoryId, int]:
    """Give each story the highest priority among itself and what waits for it, cycles or not."""
    urgency: dict[StoryId, int] = {}
    for story in sorted(by_id.values(), key=lambda story: -story.priority):
        pending = [story.id]
        while pending:
            name = pending.pop()
            if name not in urgency:
                urgency[name] = story.priority
                pending.extend(by_id[name].depends_on)
    return urgency


def _topological(by_id: dict[StoryId, Story], urgency: dict[StoryId, int]) -> list[StoryId]:
    missing = {name: len(set(story.depends_on)) for name, story in by_id.items()}
    waiting = {name: set(items) for name, items in _waiting(by_id.values()).items()}
    ready = [(-urgency[name], name) for name, count in missing.items() if count == 0]
    heapq.heapify(ready)
    chain: list[StoryId] = []
    while ready:
        _, name = heapq.heappop(ready)
        chain.append(name)
        for waiter in waiting.get(name, ()):
            missing[waiter] -= 1
            if missing[waiter] == 0:
                heapq.heappush(ready, (-urgency[waiter], waiter))
    if len(chain) < len(by_id):
        members = _cycle(by_id, left=set(by_id) - set(chain))
        raise BacklogError(
            f"stories wait for each other: {' → '.join(members)}",
            hint="an arrow reads 'depends on'; remove one of these dependencies.",
        )
    return chain


def _cycle(by_id: dict[StoryId, Story], *, left: set[StoryId]) -> list[StoryId]:
    """Find one cycle among the stories that never became ready, from its smallest id on."""
    path = [min(left)]
    while True:
        # A story that never became ready has a dependency that never did, so the walk goes on.
        following = min(name for name in by_id[path[-1]].depends_on if name in left)
        if following in path:
            members = path[path.index(following) :]
            first = members.index(min(members))
            return [*members[first:], *members[:first], members[first]]
        path.append(following)

"""The order in which branches are tried: dependencies first, then those with the fewest conflicts. Pure."""

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush

from runner.core.model import StoryId


def landing_order(
    needs: Mapping[StoryId, Collection[StoryId]], conflicts: Mapping[StoryId, Collection[StoryId]]
) -> tuple[StoryId, ...]:
    """Return every story behind what it needs; among those that could be next, fewer conflicts come first."""
    waits = {story: set(those) & set(needs) for story, those in needs.items()}
    ready = [(len(conflicts.get(story, ())), story) for story, those in waits.items() if not those]
    heapify(ready)
    order: list[StoryId] = []
    while ready:
        _, story = heappop(ready)
        order.append(story)
        for other, those in waits.items():
            if story in those:
                those.remove(story)
                if not those:
                    heappush(ready, (len(conflicts.get(other, ())), other))
    return tuple(order)

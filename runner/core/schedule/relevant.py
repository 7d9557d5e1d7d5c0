"""The stories on which the next decision depends: of a long backlog only the first that may start.

A story without dependencies is ready from the beginning, so of those only as many count as there are slots,
and some more to prepare. A backlog whose stories depend on each other, or run alone, counts as a whole.
"""

from collections.abc import Collection, Mapping, Sequence

from runner.core.model import Status, Story, StoryId, StorySnapshot
from runner.core.schedule.exclusivity import runs_alone

_OPEN = frozenset({Status.WAITING, Status.QUEUED})


class Relevant:
    """Narrows one backlog, in its order; it remembers how far its stories have been started."""

    def __init__(self, order: Sequence[Story]) -> None:
        self._order = order
        self._position = {story.id: number for number, story in enumerate(order)}
        self._whole = any(story.depends_on or runs_alone(story.mode) for story in order)
        self._passed = 0

    def start_over(self) -> None:
        """Look at all stories again: one that had started is open again."""
        self._passed = 0

    def stories(
        self, now: Mapping[StoryId, StorySnapshot], *, active: Collection[StoryId], most: int
    ) -> Sequence[Story]:
        """Return the active stories, and the first `most` that are open, in their order."""
        if self._whole:
            return self._order
        while self._passed < len(self._order) and now[self._order[self._passed].id].status not in _OPEN:
            self._passed += 1
        found = {self._position[name] for name in active}
        number = self._passed
        while number < len(self._order) and most > 0:
            if now[self._order[number].id].status in _OPEN:
                found.add(number)
                most -= 1
            number += 1
        return [self._order[number] for number in sorted(found)]

"""Which worker prepares for which story, so that no story waits for its worktree in its slot.

A worker has one such story at most. Nothing of this is durable or binding: the story starts wherever there is
room, and what was prepared in vain is undone. A story lets others go first for a moment if its own worker
is busy and another one has prepared for them; after that it takes the first free slot.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import trio

from runner.core.model import Story, StoryId
from runner.remote.cluster.placing.placement import Needs, Room
from runner.remote.cluster.wire.messages import Start

PATIENCE_SECONDS = 2.0
"""For how long others may go first."""


class Preparing(Protocol):
    """What is needed of the link to a worker; `expects` is the story for which the worker prepares."""

    expects: str

    @property
    def placed(self) -> Mapping[str, Needs]:
        """The stories that are placed there."""

    @property
    def can_prepare(self) -> bool:
        """Whether the worker has what it takes to prepare for another story."""

    def room(self, is_leaving: Callable[[str], bool]) -> Room:
        """Return what the worker has."""

    def expect(self, start: Start | None) -> None:
        """Have the worker prepare for a story, and for no other."""


L = TypeVar("L", bound=Preparing)


class Ahead:
    """The stories for which workers prepare; `link.expects` has the story of each worker."""

    def __init__(self) -> None:
        self._expected: set[str] = set()
        self._passed_at: dict[str, float] = {}

    @property
    def patient(self) -> Collection[StoryId]:
        """The stories that let others go first now."""
        late = trio.current_time() - PATIENCE_SECONDS
        return {StoryId(name) for name in self._expected if self._passed_at.get(name, late + 1.0) > late}

    def keep(self, ready: Collection[StoryId], links: Iterable[Preparing]) -> None:
        """Prepare no longer for stories that cannot start any more; a worker that left prepares for none."""
        self._expected = set()
        for link in links:
            if link.expects and link.expects not in ready:
                _drop(link)
            elif link.expects:
                self._expected.add(link.expects)
        self._passed_at = {name: at for name, at in self._passed_at.items() if name in self._expected}

    def passed(self, stories: Iterable[StoryId]) -> None:
        """Note that these could not start now."""
        for name in stories:
            if name in self._expected:
                self._passed_at.setdefault(name, trio.current_time())

    def assign(self, stories: Sequence[Story], links: Sequence[L]) -> Iterator[tuple[L, Story]]:
        """Return a story for each worker that has none to prepare for, in the order of the stories."""
        waiting = [story for story in stories if story.id not in self._expected]
        for link in links:
            if link.expects or not link.can_prepare:
                continue
            suiting = (
                story for story in waiting if link.room(lambda _: False).suits(story.needs, story.repo)
            )
            story = next(suiting, None)
            if story is not None:
                waiting.remove(story)
                self._expected.add(story.id)
                link.expects = story.id
                yield link, story

    def forget(self, story_id: StoryId, links: Iterable[Preparing]) -> None:
        """Note that a story is placed; a worker that prepared for it in vain undoes that."""
        self._expected.discard(story_id)
        self._passed_at.pop(story_id, None)
        for link in links:
            if link.expects == story_id:
                link.expects = ""
                if story_id not in link.placed:
                    link.expect(None)


def _drop(link: Preparing) -> None:
    link.expects = ""
    link.expect(None)

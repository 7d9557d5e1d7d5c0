"""How a run, or one of its stories, is asked to end: levels that only rise.

FINISH lets the running session reach its end, STOP ends it with its grace period, KILL immediately.
"""

from enum import IntEnum

import trio

from runner.core.model import StoryId


class Level(IntEnum):
    """How urgently something is to end."""

    RUN = 0
    FINISH = 1
    STOP = 2
    KILL = 3


class StopControl:
    """The levels of the run and of single stories, and a way to wait for them to rise."""

    def __init__(self) -> None:
        self.run_level = Level.RUN
        """The level of the whole run; `raise_run` writes it."""
        self._stories: dict[StoryId, Level] = {}
        self._raised = trio.Event()

    def level(self, story_id: StoryId) -> Level:
        """Return the level that applies to one story."""
        return max(self.run_level, self._stories.get(story_id, Level.RUN))

    def raise_run(self, level: Level) -> None:
        """Ask the whole run to end."""
        if level > self.run_level:
            self.run_level = level
            self._wake()

    def raise_story(self, story_id: StoryId, level: Level) -> None:
        """Ask one story to end."""
        if level > self._stories.get(story_id, Level.RUN):
            self._stories[story_id] = level
            self._wake()

    async def wait_for(self, story_id: StoryId, level: Level) -> None:
        """Wait until the story's level is at least `level`."""
        while self.level(story_id) < level:
            await self._raised.wait()

    async def wait_for_run(self, level: Level) -> None:
        """Wait until the run's level is at least `level`."""
        while self.run_level < level:
            await self._raised.wait()

    def _wake(self) -> None:
        self._raised.set()
        self._raised = trio.Event()

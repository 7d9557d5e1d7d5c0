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


CTRL_C = "stopped by you (Ctrl-C)"
STOP_COMMAND = "stopped by `autopilot-multi stop`"
STOP_COMMAND_NOW = "stopped by `autopilot-multi stop --now`"


class StopControl:
    """The levels of the run and of single stories, and a way to wait for them to rise."""

    def __init__(self) -> None:
        self.run_level = Level.RUN
        """The level of the whole run; `raise_run` writes it."""
        self.run_asked_by = ""
        """What raised it last."""
        self._stories: dict[StoryId, tuple[Level, str]] = {}
        self._raised = trio.Event()

    @property
    def asked(self) -> bool:
        """Whether the run or any story was asked to end."""
        return self.run_level > Level.RUN or bool(self._stories)

    @property
    def stories(self) -> dict[StoryId, tuple[Level, str]]:
        """The levels of single stories, and what raised each."""
        return dict(self._stories)

    def level(self, story_id: StoryId) -> Level:
        """Return the level that applies to one story."""
        return max(self.run_level, self._of(story_id)[0])

    def asked_by(self, story_id: StoryId) -> str:
        """Return what asked a story to end, in words; empty if nothing did."""
        level, words = self._of(story_id)
        return words if level > self.run_level else self.run_asked_by

    def raise_run(self, level: Level, by: str = CTRL_C) -> None:
        """Ask the whole run to end; `by` says what asked."""
        if level > self.run_level:
            self.run_level, self.run_asked_by = level, by
            self._wake()

    def raise_story(self, story_id: StoryId, level: Level, by: str = STOP_COMMAND) -> None:
        """Ask one story to end; `by` says what asked."""
        if level > self._of(story_id)[0]:
            self._stories[story_id] = (level, by)
            self._wake()

    def forget(self, story_id: StoryId) -> None:
        """Let a story run again that was asked to end."""
        self._stories.pop(story_id, None)

    def _of(self, story_id: StoryId) -> tuple[Level, str]:
        return self._stories.get(story_id, (Level.RUN, ""))

    async def raised(self) -> None:
        """Wait until any level rises."""
        await self._raised.wait()

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

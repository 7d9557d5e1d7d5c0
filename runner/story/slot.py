"""The place of a story among those that run."""

from dataclasses import dataclass, field

import trio

from runner.core.model import Story, StoryId


@dataclass(slots=True, eq=False, kw_only=True)
class Slot:
    """A story's place among those that run: it works once the slot is granted, or is cancelled before that.

    `story` is the story as it is when the slot is granted; its file may have been edited until then. Its id
    is sent to `left` when its pipeline has ended, however it ended.
    """

    left: trio.MemorySendChannel[StoryId]
    story: Story
    granted: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def grant(self, story: Story) -> None:
        """Let the story work."""
        self.story = story
        self.granted.set()

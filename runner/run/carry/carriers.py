"""What carries the stories of a run: this machine, or the workers of a cluster.

The orchestrator decides which story starts; a carrier takes it from there to its result. That is the one seam
between a run on this machine and one on many.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from runner.core.events import events as ev
from runner.core.model import Story, StoryId
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.window import Window
from runner.run.window import WindowKeeper
from runner.story.context.context import RunContext, StoryContext
from runner.story.pipeline import Pipeline
from runner.story.slot import Slot
from runner.story.workspace import intent


class WindowSource(Protocol):
    """Sets how many stories may run, and follows what that depends on."""

    async def begin(self) -> Window:
        """Set the first window."""

    async def keep(self, window: Window) -> None:
        """Follow until cancelled."""


class Carriers(Protocol):
    """Takes stories from their start to their result."""

    prepares_ahead: bool
    """Whether a workspace can be made before its story has a slot."""

    def unplaced(self, stories: Sequence[Story], ready: Collection[StoryId]) -> Mapping[StoryId, str]:
        """Return which of these could not all start now, in this order, and what each waits for.

        `ready` are all stories that lack nothing but a slot.
        """

    def expect(self, stories: Sequence[Story]) -> None:
        """Prepare, where stories are carried, for those that come next; no slot is taken for that."""

    def intent(self, story: Story) -> Sequence[ev.Body]:
        """Return what must be durable before the story is carried."""

    def carry(self, context: StoryContext, slot: Slot, *, interrupted: bool) -> Callable[[], Awaitable[None]]:
        """Return what carries the story; it sends the story's id to `slot.left` when it ends."""

    def window(self) -> WindowSource:
        """Return what sets the window."""


OpenCarriers = Callable[[RunContext, Sequence[ev.Event]], AbstractAsyncContextManager[Carriers]]
"""Opens what carries the stories of a run elsewhere; the events are those of the run so far."""


class LocalCarriers:
    """Carries stories on this machine; `sample` measures it, and blocks."""

    prepares_ahead = True

    def __init__(self, context: RunContext, sample: Callable[[], ResourceSample]) -> None:
        self._context = context
        self._sample = sample

    def unplaced(
        self,
        stories: Sequence[Story],  # noqa: ARG002  the window alone decides
        ready: Collection[StoryId],  # noqa: ARG002  as above
    ) -> Mapping[StoryId, str]:
        """Return nothing: any story can run here."""
        return {}

    def expect(self, stories: Sequence[Story]) -> None:
        """Do nothing: the orchestrator itself begins with stories that come next."""

    def intent(self, story: Story) -> Sequence[ev.Body]:
        """Return the workspace that is about to be made."""
        return (intent(story, self._context.at(story.repo)),)

    def carry(self, context: StoryContext, slot: Slot, *, interrupted: bool) -> Callable[[], Awaitable[None]]:
        """Return the walk of the story."""
        return Pipeline(context, interrupted=interrupted, slot=slot).run

    def window(self) -> WindowSource:
        """Return what follows the load of this machine."""
        return WindowKeeper(context=self._context, sample=self._sample)

"""How many stories a worker's machine allows: the same rules as for a run on one machine."""

from collections.abc import Callable

import trio
from msgspec.structs import replace
from trio import to_thread

from runner.core.model import StoryId
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.tiers import has_ample_disk
from runner.core.schedule.window import Limit, Needs, Window, first, follow, least_need, limit
from runner.remote.cluster.wire.messages import Machine
from runner.story.context.context import RunContext

TICK_SECONDS = 2.0


class MachineWatch:
    """Follows the load of this machine; `sample` measures it, and blocks.

    `slots` is what the worker was started with, 0 for as many as the run's settings say.
    """

    def __init__(self, context: RunContext, slots: int, sample: Callable[[], ResourceSample]) -> None:
        self._context = context
        self._sample = sample
        most = context.settings.max_stories
        self._settings = replace(context.settings, max_stories=min(slots, most) if slots else most)
        self._window: Window | None = None

    async def look(self, running: tuple[StoryId, ...]) -> Machine:
        """Return how many stories the machine allows now."""
        allowed = await self._allowed(running)
        self._window = first(allowed) if self._window is None else follow(self._window, allowed)
        window = self._window
        return Machine(
            stories=window.stories, tier=window.tier, reason=window.reason, has_disk=self._has_disk
        )

    @property
    def _has_disk(self) -> bool:
        """Whether there is ample room on the disk, by the last sample."""
        return has_ample_disk(self._context.latest.sample, self._settings.tiers)

    async def _allowed(self, running: tuple[StoryId, ...]) -> Limit:
        meter, settings = self._context.meter, self._settings
        await meter.look()
        least = least_need(settings)
        needs = Needs()
        if least:
            in_use = tuple(meter.in_use(story_id) for story_id in running)
            needs = Needs(story=max(meter.largest, least), in_use=in_use)
        sample = await to_thread.run_sync(self._sample)
        self._context.latest.sample = sample
        return limit(sample, needs, settings)

    async def keep(self, running: Callable[[], tuple[StoryId, ...]], tell: Callable[[Machine], None]) -> None:
        """Follow until cancelled."""
        while True:
            await trio.sleep(TICK_SECONDS)
            tell(await self.look(running()))

"""Adjusts the window: samples the machine and what stories use, and records every change.

One task does this; the orchestrator, which admits stories, reads the window from the snapshot.
"""

from collections.abc import Callable

import trio

from runner.core.events import events as ev
from runner.core.model import Status
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.window import FIXED, Limit, Needs, Window, first, follow, least_need, limit
from runner.story.context.context import RunContext

TICK_SECONDS = 2.0


class WindowKeeper:
    """Lets the window of one run follow the machine; `sample` blocks and is called in a thread."""

    def __init__(self, *, context: RunContext, sample: Callable[[], ResourceSample]) -> None:
        self._context = context
        self._sample = sample

    async def begin(self) -> Window:
        """Set the first window."""
        settings = self._context.settings
        window = first(await self._look())
        bodies: list[ev.Body] = [_changed(window)]
        if settings.window == FIXED:
            fixed = f"fixed number of slots: {settings.max_stories}, regardless of the machine's load"
            bodies.append(ev.Noted(message=fixed))
        self._context.log.defer(*bodies)  # the first stories are recorded right behind it
        return window

    async def keep(self, window: Window) -> None:
        """Follow the machine until cancelled."""
        while True:
            await trio.sleep(TICK_SECONDS)
            before, window = window, follow(window, await self._look())
            if (window.stories, window.tier) != (before.stories, before.tier):
                await self._context.log.record(_changed(window))

    async def _look(self) -> Limit:
        # First the stories, then the machine: a session that ends in between makes the limit too high for
        # one sample, and the window rises only after several. The other way round it would fall for nothing.
        await self._context.meter.look()
        needs = self._needs()
        sample = await trio.to_thread.run_sync(self._sample)
        self._context.latest.sample = sample
        return limit(sample, needs, self._context.settings)

    def _needs(self) -> Needs:
        """Return what stories need: as much as the largest so far, and at least what the settings say."""
        meter, settings = self._context.meter, self._context.settings
        least = least_need(settings)
        if not least:
            return Needs()
        stories = self._context.log.snapshot.stories.values()
        return Needs(
            story=max(meter.largest, least),
            in_use=tuple(meter.in_use(story.id) for story in stories if story.status is Status.RUNNING),
        )


def _changed(window: Window) -> ev.WindowChanged:
    return ev.WindowChanged(window=window.stories, tier=window.tier, reason=window.reason)

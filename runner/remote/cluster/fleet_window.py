"""The window of a run on workers: the sum of theirs."""

from collections.abc import Awaitable, Callable

import trio

from runner.core.events.events import WindowChanged
from runner.core.schedule.window import Limit, Window, first
from runner.records.event_log import EventLog


class FleetWindow:
    """Records how many stories may run on all workers together; `limit` is that now."""

    def __init__(
        self, log: EventLog, limit: Callable[[], Limit], changed: Callable[[], Awaitable[None]]
    ) -> None:
        self._log = log
        self._limit = limit
        self._changed = changed

    async def begin(self) -> Window:
        """Set the first window."""
        await trio.lowlevel.checkpoint()
        window = first(self._limit())
        self._log.defer(_body(window))
        return window

    async def keep(self, window: Window) -> None:
        """Follow the workers until cancelled."""
        while True:
            await self._changed()
            before, window = window, first(self._limit())
            if (window.stories, window.tier, window.reason) != (before.stories, before.tier, before.reason):
                await self._log.record(_body(window))


def _body(window: Window) -> WindowChanged:
    return WindowChanged(window=window.stories, tier=window.tier, reason=window.reason)

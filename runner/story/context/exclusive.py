"""The right of a session to run alone among the sessions of its run.

A mode that tolerates no other session may be known only just before the session starts. It then waits until
the sessions that run have ended, and no other starts before it has. Nothing that runs is ended for it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


class SessionGate:
    """Lets sessions in: any number of ordinary ones, or one alone."""

    def __init__(self) -> None:
        self._inside = 0
        self._claims = 0
        self._changed = trio.Event()

    def is_open(self, *, alone: bool) -> bool:
        """Whether a session could enter now."""
        # Who wants to be alone goes first: otherwise a steady flow of sessions would keep it out forever.
        return not self._inside if alone else not self._claims

    @asynccontextmanager
    async def entered(self, *, alone: bool, unless: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Wait for the turn of a session, and be inside while the block runs.

        When `unless` returns first, the block runs without a turn: its caller must not start the session.
        """
        entered = aborted = False
        self._claims += alone
        try:
            while not aborted and not self.is_open(alone=alone):
                aborted = await self._changed_or(unless)
            # Without a wait since the check, so that no two can find the same gate open.
            entered = not aborted
            self._inside += entered
            yield
        finally:
            self._inside -= entered
            self._claims -= alone
            self._changed.set()
            self._changed = trio.Event()

    async def _changed_or(self, unless: Callable[[], Awaitable[None]]) -> bool:
        """Wait until a session has left; return whether `unless` returned first."""
        aborted = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_after, self._changed.wait, nursery.cancel_scope)
            await unless()
            aborted = True
            nursery.cancel_scope.cancel()
        return aborted


async def _cancel_after(event: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await event()
    scope.cancel()

"""How a session is listed for others, for exactly as long as its block runs: in the registry, or by a lock.

That is a courtesy to other sessions. A disk that refuses it is noted, and never fails a story.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import trio
from msgspec.structs import replace

from isolation.files import threads
from runner.machine.registry import SessionEntry

BEAT_SECONDS = 60.0
WITHDRAW_SECONDS = 5.0
"""How long the end of a session waits for a disk that hangs; after that, the entry expires."""


class Listing(Protocol):
    """Where a session is listed; both methods may be repeated, and block."""

    def write(self, entry: SessionEntry) -> None:
        """Write or renew what is listed of a session."""

    def withdraw(self, entry: SessionEntry) -> None:
        """Remove it."""


class Unlisted:
    """Nowhere: for sessions that others are not meant to see."""

    def write(self, entry: SessionEntry) -> None:
        """List nothing."""

    def withdraw(self, entry: SessionEntry) -> None:
        """Have nothing to remove."""


@asynccontextmanager
async def present(
    listing: Listing,
    entry: SessionEntry,
    *,
    note: Callable[[str], None],
    clock: Callable[[], float] = time.time,
) -> AsyncIterator["Presence"]:
    """List a session for others while the block runs; `note` is called with an error of the disk.

    The entry is written and withdrawn concurrently with the block, which need not wait for the disk.
    """
    presence = Presence(listing, entry, note=note, clock=clock)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(presence.keep)
            try:
                yield presence
            finally:
                presence.end()
    except BaseExceptionGroup as group:
        # The task never fails, so that the one error is the block's own, as if it had no nursery around it.
        errors = group.split(trio.Cancelled)[1]
        if errors is None or len(errors.exceptions) != 1:
            raise
        raise errors.exceptions[0] from None


class Presence:
    """The entry of one session, from its first heartbeat to its withdrawal."""

    def __init__(
        self,
        listing: Listing,
        entry: SessionEntry,
        *,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._listing = listing
        self._entry = entry
        self._note = note
        self._clock = clock
        self._seen = trio.Event()
        self._beating = trio.CancelScope()
        self._complained = False

    async def seen(self) -> None:
        """Wait until the entry is written, or has failed to be."""
        await self._seen.wait()

    def end(self) -> None:
        """Have the entry withdrawn; may be called again."""
        self._beating.cancel()

    async def keep(self) -> None:
        """Write heartbeats until the end, then withdraw the entry."""
        try:
            with self._beating:
                while True:
                    await self._beat()
                    self._seen.set()
                    await trio.sleep(BEAT_SECONDS)
        finally:
            with trio.move_on_after(WITHDRAW_SECONDS, shield=True):
                await self._withdraw()

    async def _beat(self) -> None:
        entry = replace(self._entry, heartbeat=self._clock())
        try:
            await threads.run(self._listing.write, entry)
        except OSError as error:
            if not self._complained:
                self._note(f"other sessions cannot see {entry.session_id}: {error}")
            self._complained = True

    async def _withdraw(self) -> None:
        try:
            await trio.to_thread.run_sync(self._listing.withdraw, self._entry, abandon_on_cancel=True)
        except OSError as error:
            self._note(f"{self._entry.session_id} has ended, but its entry stays: {error}")

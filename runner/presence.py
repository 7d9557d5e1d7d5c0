"""Being seen: a session's entry in the registry for exactly as long as its block runs.

The registry is a courtesy to others. A disk that refuses it is worth a note, and never costs a story.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from runner.groups import alone
from runner.registry import Entry, Registry

BEAT_SECONDS = 60.0
WITHDRAW_SECONDS = 5.0
"""How long the end of a session waits for a disk that hangs; the entry then ages by itself."""


@asynccontextmanager
async def present(
    registry: Registry,
    entry: Entry,
    *,
    note: Callable[[str], None],
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[None]:
    """Let others see a session while the block runs; `note` hears of a disk that does not."""
    complained = False

    async def beat() -> None:
        nonlocal complained
        try:
            await trio.to_thread.run_sync(registry.write, replace(entry, heartbeat=clock()))
        except OSError as error:
            if not complained:
                note(f"other sessions cannot see {entry.session_id}: {error}")
            complained = True

    async def keep_beating() -> None:
        while True:
            await trio.sleep(BEAT_SECONDS)
            await beat()

    await beat()
    try:
        with alone():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_beating)
                yield
                nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(WITHDRAW_SECONDS, shield=True):
            await _withdraw(registry, entry, note)


async def _withdraw(registry: Registry, entry: Entry, note: Callable[[str], None]) -> None:
    try:
        await trio.to_thread.run_sync(registry.withdraw, entry, abandon_on_cancel=True)
    except OSError as error:
        note(f"{entry.session_id} has ended, but its entry in the registry stays: {error}")

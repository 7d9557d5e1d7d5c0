"""Ctrl-C and its relatives: each signal raises the level of stopping, and says what the next one would do."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from runner.story.context.stop import Level, StopControl


@dataclass(slots=True)
class EndedBy:
    """Which signal, if any, asked for the end."""

    code: int | None = None


@asynccontextmanager
async def listening(
    control: StopControl, ended_by: EndedBy, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Turn Ctrl-C and SIGTERM into levels of stopping; each says what the next one would do."""

    async def listen(*, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
            task_status.started()
            async for number in received:
                ended_by.code = 128 + number
                level = Level(min(control.run_level + 1, Level.KILL))
                if number != signal.SIGINT:
                    level = max(level, Level.STOP)
                control.raise_run(level)
                say(_LEVEL_WORDS[level])

    async with trio.open_nursery() as nursery:
        await nursery.start(listen)
        yield
        nursery.cancel_scope.cancel()


def ctrl_c(control: StopControl) -> str:
    """Say what the next Ctrl-C would do."""
    return _NEXT_WORDS[control.run_level]


_NEXT_WORDS = {
    Level.RUN: "Ctrl-C: start nothing new, let running sessions end",
    Level.FINISH: "Ctrl-C: ask the running sessions to end",
    Level.STOP: "Ctrl-C: end the sessions at once",
    Level.KILL: "all sessions are ended",
}
_LEVEL_WORDS = {
    Level.FINISH: "stopping: nothing new starts, running sessions reach their end; "
    "Ctrl-C again ends the sessions",
    Level.STOP: "stopping: sessions are asked to end and have their grace; Ctrl-C again ends them at once",
    Level.KILL: "stopping: all sessions are ended at once",
}

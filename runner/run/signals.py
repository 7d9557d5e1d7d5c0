"""Ctrl-C and other signals: each raises the stop level, and says what the next one would do."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from runner.story.context.stop import CTRL_C, Level, StopControl


@dataclass(slots=True)
class EndedBy:
    """Which signal, if any, ended the run, as an exit code."""

    code: int | None = None


@asynccontextmanager
async def listening(
    control: StopControl, ended_by: EndedBy, say: Callable[[str], None], *, first: Level = Level.FINISH
) -> AsyncIterator[None]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into stop levels; each says what the next one would do."""

    async def listen(*, task_status: trio.TaskStatus[None]) -> None:
        # Under nohup a closed terminal must not end the run.
        outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        hangup = () if outlives else (signal.SIGHUP,)
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, *hangup) as received:
            task_status.started()
            async for number in received:
                ended_by.code = 128 + number
                level = Level(min(max(control.run_level + 1, first), Level.KILL))
                if number != signal.SIGINT:
                    level = max(level, Level.STOP)
                control.raise_run(level, _ASKED_BY.get(number, CTRL_C))
                cause = f"{_ASKED_BY[number]}; " if number in _ASKED_BY else ""
                say(f"stopping: {cause}{_LEVEL_WORDS[level]}")

    async with trio.open_nursery() as nursery:
        await nursery.start(listen)
        yield
        nursery.cancel_scope.cancel()


def ctrl_c(control: StopControl, *, first: Level = Level.FINISH) -> str:
    """Return what the next Ctrl-C would do; `first` is what the first one does."""
    return _NEXT_WORDS[max(control.run_level, Level(first - 1))]


_NEXT_WORDS = {
    Level.RUN: "Ctrl-C: start nothing new, let running sessions end",
    Level.FINISH: "Ctrl-C: ask the running sessions to end",
    Level.STOP: "Ctrl-C: end the sessions immediately",
    Level.KILL: "all sessions are being ended",
}
_ASKED_BY = {
    int(signal.SIGTERM): "ended by another program (SIGTERM)",
    int(signal.SIGHUP): "the terminal was closed (SIGHUP)",
}
_LEVEL_WORDS = {
    Level.FINISH: "nothing new starts, running sessions may finish; Ctrl-C again asks them to end",
    Level.STOP: "sessions have a grace period to end; Ctrl-C again ends them immediately",
    Level.KILL: "all sessions are ended immediately",
}

"""Watch a run of another process on a terminal, with keys where somebody can press them."""

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from runner.cli.live.board import REFRESH_SECONDS, LiveBoard
from runner.cli.live.terminal import KeyTerminal, has_keys

if TYPE_CHECKING:
    from runner.run.control.reader import RunReader

HINT = "Ctrl-C: stop watching; the run continues"
KEYS_HINT = "q or Ctrl-C: stop watching; the run continues"


def watch_run(reader: "RunReader", directory: Path, *, no_color: bool) -> bool:
    """Show a run until it ends or the user leaves; return whether it was left."""
    ended_by: list[int] = []
    left = trio.run(partial(_watch, reader, directory, ended_by, no_color=no_color))
    if ended_by == [signal.SIGINT]:
        raise KeyboardInterrupt
    if ended_by:
        raise SystemExit(128 + ended_by[0])
    return left


async def _watch(reader: "RunReader", directory: Path, ended_by: list[int], *, no_color: bool) -> bool:
    from rich.console import Console

    console = Console(no_color=no_color or None, highlight=False)
    keys = KeyTerminal(sys.stdin.fileno()) if has_keys() else None
    board = LiveBoard(directory, console=console, keys=keys, attached=True)
    board.bell = keys is not None and await trio.to_thread.run_sync(_rings, directory)
    hint = HINT if keys is None else KEYS_HINT
    async with trio.open_nursery() as nursery:

        async def show() -> None:
            await board.show(lambda: hint)
            nursery.cancel_scope.cancel()

        await nursery.start(_end_on_signal, ended_by, nursery.cancel_scope)
        nursery.start_soon(show)
        await _poll(reader, board)
        nursery.cancel_scope.cancel()
    return board.left


def _rings(directory: Path) -> bool:
    """Whether questions ring the bell by the settings of now; those that cannot be read silence nothing."""
    from isolation.errors import IsolationError
    from isolation.git.repository import Repository
    from runner.core.errors import RunnerError
    from runner.plan.settings.load import load_settings

    try:
        top = Repository.open(directory).top
        return load_settings(top=top, flags={}, environ=os.environ).settings.bell
    except (IsolationError, RunnerError):
        return True


async def _poll(reader: "RunReader", board: LiveBoard) -> None:
    """Bring the board the newest state until the run is over."""
    while not (current := await trio.to_thread.run_sync(reader.read)).over:
        board.update(await trio.to_thread.run_sync(reader.with_last_lines, current.run))
        await trio.sleep(REFRESH_SECONDS)


async def _end_on_signal(
    ended_by: list[int], scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    """End in order, so that the terminal is put back; the caller raises what the signal means."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
        task_status.started()
        async for number in received:
            ended_by.append(number)
            scope.cancel()
            return

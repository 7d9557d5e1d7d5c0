"""The coordinator's side of the keepers: one fork server per run, one keeper process per session.

Every session is started here and nowhere else. Its standard input is the prompt, then EOF; its
output is one pipe. `keeper/server.py` explains what happens below.

Invariants:

- Leaving a `start` block, however it is left, means that the session's tree is dead.
- Closing the socket is how a session is killed, so a coordinator that dies has the same effect as one that
  asks.
- No read waits for a pipe that something outside the tree holds open.
"""

import fcntl
import os
import socket
import sys
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio
from msgspec import Struct

from isolation.errors import KeeperError
from isolation.keeper.fork_server import CLOSE_LIMIT, ForkServer
from isolation.keeper.wire import Lines, encode, read_answer, read_report
from isolation.kernel.process_tree import Tree, kill_level, load_stat, resident
from isolation.model import Exit, SessionSpec

__all__ = ["Keeper", "Session", "TreeUsage", "kill_level", "open_keeper", "wait_for_old_keepers"]

CHUNK = 65536
POLL_SECONDS = 0.02
OUTPUT_ROOM = 1 << 20
"""What any user may ask for by default; memory is taken only while it is filled."""


class TreeUsage(Struct, frozen=True, kw_only=True):
    """What a session uses now; its CPU time counts members that have ended, so it never falls.

    Memory that members share is counted for each of them, unless one was forked only now.
    """

    cpu_seconds: float
    rss_bytes: int
    processes: int


@asynccontextmanager
async def open_keeper(
    *, alive_lock: Path, more: Sequence[Path] = (), network: bool = False
) -> AsyncIterator["Keeper"]:
    """Run the fork server; when the block is left, it and all keepers are gone.

    It starts while the block already runs, see `Keeper.ready`. `alive_lock` is created if it is missing,
    never removed, and held as long as one of them lives; so are `more`, those of further repositories. With
    `network` it prepares for sessions that have a network of their own.
    """
    server = ForkServer(alive_lock, more=more, network=network)
    try:
        await server.open()
        yield Keeper(server)
    finally:
        await server.close()


async def wait_for_old_keepers(alive_lock: Path) -> bool:
    """Wait until no keeper of an earlier coordinator lives, and so nothing that it started.

    False only if the file system has no locks, so that it cannot be known.
    """
    await trio.lowlevel.checkpoint()
    try:
        descriptor = os.open(alive_lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await trio.sleep(POLL_SECONDS)
            except OSError:
                return False
            else:
                # Not left to close(): a fork may hold a copy of the descriptor for a moment.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                return True
    finally:
        os.close(descriptor)


class _Link:
    """The control socket of one keeper: the request, orders, and the one report of the end."""

    def __init__(self, control: socket.socket, server: ForkServer) -> None:
        self._control = control
        self._server = server
        self._lines = Lines(control)
        self._lock = trio.Lock()
        self.keeper_pid = 0
        self.server_pid = 0
        self.report: str | None = None
        """The keeper's last line; empty if it exited without one."""

    def name(self, keeper_pid: int) -> None:
        """Say which keeper is at the other end."""
        self.keeper_pid = keeper_pid
        self._server.keepers.add(keeper_pid)

    async def begin(self, request: bytes) -> str:
        """Request the session; return the keeper's first line, empty if it exited without one."""
        with suppress(BrokenPipeError, ConnectionResetError):
            view = memoryview(request)
            while view:
                try:
                    view = view[self._control.send(view) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._control)
        answer = await self._lines.receive() or ""
        if not answer.startswith("pid "):
            await self._settle(answer)
            self.report = answer
        return answer

    async def _settle(self, last: str) -> None:
        """End what is left if neither the keeper nor the server could write the last line."""
        self._server.keepers.discard(self.keeper_pid)
        if not last:
            await self._server.end_orphans((self.keeper_pid, self.server_pid))

    async def ended(self) -> str:
        """Wait for the report; any number of tasks may wait, and one of them reads."""
        if self.report is not None:
            return self.report
        async with self._lock:
            while self.report is None:
                line = await self._lines.receive() or ""
                # A start that was cancelled has not read the first line.
                if not line.startswith("pid "):
                    await self._settle(line)
                    self.report = line
        return self.report

    def stop(self, *, grace: float) -> None:
        """Ask for SIGTERM now, and SIGKILL after the grace."""
        try:
            self._control.send(f"stop {max(grace, 0.0)}\n".encode())
        except BlockingIOError:  # the keeper does not read its orders; EOF needs no buffer
            self.kill()
        except OSError:
            pass  # it was killed before, or has ended

    def kill(self) -> None:
        """Send EOF, which a keeper obeys in every state; its report can still arrive."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close our end."""
        trio.lowlevel.notify_closing(self._control)
        self._control.close()


class _Output:
    """The read end of a session's output; after `end`, only what was in the pipe at that moment is read."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._left: int | None = None

    def end(self) -> None:
        """Limit reading to what is in the pipe: a process that still holds it is not in the tree."""
        if self._left is None:
            waiting = fcntl.ioctl(self.descriptor, termios.FIONREAD, bytes(4))
            self._left = int.from_bytes(waiting, sys.byteorder)

    def read(self) -> bytes:
        """Return what is in the pipe; raises BlockingIOError if nothing is."""
        if self._left is None:
            return os.read(self.descriptor, CHUNK)
        data = os.read(self.descriptor, min(CHUNK, self._left)) if self._left else b""
        self._left -= len(data)
        return data

    def close(self) -> None:
        """Close the pipe."""
        self._left = 0
        trio.lowlevel.notify_closing(self.descriptor)
        os.close(self.descriptor)


class Session:
    """One running process tree under its keeper."""

    def __init__(self, link: _Link, output: _Output, *, pid: int, keeper_pid: int) -> None:
        self.pid = pid
        self._link = link
        self._output = output
        self._keeper_pid = keeper_pid
        keeper = load_stat(keeper_pid)
        self._keeper_started = keeper.started if keeper else None

    async def receive(self) -> bytes:
        """Return the next bytes of its output, at most 64 KiB; none at the end. For one task."""
        await trio.lowlevel.checkpoint_if_cancelled()
        waited = False
        while True:
            if self._link.report is not None:
                self._output.end()
            try:
                data = self._output.read()
            except BlockingIOError:
                await self._readable_or_ended()
                waited = True
                continue
            if not waited:
                await trio.lowlevel.cancel_shielded_checkpoint()  # a flood must not starve other tasks
            return data

    async def _readable_or_ended(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_at_end, nursery.cancel_scope)
            await trio.lowlevel.wait_readable(self._output.descriptor)
            nursery.cancel_scope.cancel()

    async def _cancel_at_end(self, scope: trio.CancelScope) -> None:
        await self._link.ended()
        scope.cancel()

    def stop(self, *, grace: float) -> None:
        """SIGTERM to every process, SIGKILL to what is left `grace` seconds later.

        Another call may only shorten the grace.
        """
        self._link.stop(grace=grace)

    def kill(self) -> None:
        """SIGKILL everything, without a grace."""
        self._link.kill()

    async def wait(self) -> Exit:
        """Wait until the tree is empty; raises KeeperError when its keeper was killed.

        `stopped` means that the leader was still running when it was asked to end.
        """
        return read_report(await self._link.ended(), self.pid)

    def usage(self) -> TreeUsage | None:
        """Return what the tree uses; None if it has ended, or without procfs."""
        keeper = load_stat(self._keeper_pid)
        # The start time guards against another process that has got the keeper's pid by now.
        if keeper is None or keeper.started != self._keeper_started or self._link.report is not None:
            return None
        members = {pid: stat for pid in Tree(self._keeper_pid).members() if (stat := load_stat(pid))}
        stats = members.values()
        return TreeUsage(
            cpu_seconds=keeper.cpu_seconds_below + sum(s.cpu_seconds + s.cpu_seconds_below for s in stats),
            rss_bytes=resident(members),
            processes=len(stats),
        )


class Keeper:
    """Starts the sessions of this run."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server

    @property
    def pids(self) -> frozenset[int]:
        """The fork server and the keepers of the sessions that are alive; any thread may ask."""
        return frozenset(self._server.keepers) | {self._server.pid}

    async def ready(self) -> None:
        """Wait until the server is up; raises KeeperError if it cannot start."""
        await self._server.ready()

    @asynccontextmanager
    async def start(self, spec: SessionSpec) -> AsyncIterator[Session]:
        """Run a session; raises KeeperError if its program cannot be started.

        When the block is left, also by an exception or a cancellation, its whole tree is dead.
        """
        request = encode(spec)
        link, output, ends = _open_channels(spec.prompt, self._server)
        try:
            try:
                await self._server.hand_over(ends)
                link.server_pid = self._server.pid
            finally:
                for descriptor in ends:
                    os.close(descriptor)
            pid, keeper_pid = read_answer(await link.begin(request), spec)
            link.name(keeper_pid)
            yield Session(link, output, pid=pid, keeper_pid=keeper_pid)
        finally:
            await _end(link, output)


async def _end(link: _Link, output: _Output) -> None:
    """Kill what is left of a session and wait until the keeper reports that it is dead."""
    link.kill()
    try:
        with trio.move_on_after(CLOSE_LIMIT, shield=True) as limit:
            await link.ended()
    finally:
        link.close()
        output.close()
    if limit.cancelled_caught:
        raise KeeperError(
            f"a session's keeper did not report its end within {CLOSE_LIMIT:.0f} seconds",
            hint="find processes that hang (ps -eo pid,stat,args), then resume the run",
        )


def _open_channels(prompt: Path, server: ForkServer) -> tuple[_Link, _Output, tuple[int, int, int]]:
    """Open our ends of a session's control and output, and the three descriptors for its keeper."""
    opened: list[int] = []
    try:
        opened.append(os.open(prompt, os.O_RDONLY | os.O_CLOEXEC))
        opened += os.pipe()
        control, control_end = socket.socketpair()
    except OSError as error:
        for descriptor in opened:
            os.close(descriptor)
        raise KeeperError(
            f"cannot start a session with the prompt {prompt}: {error.strerror}",
            hint="check that the file exists, and the limit on open files (ulimit -n)",
        ) from error
    stdin, output, output_end = opened
    _widen(output_end)
    os.set_blocking(output, False)
    control.setblocking(False)
    return _Link(control, server), _Output(output), (control_end.detach(), stdin, output_end)


def _widen(output: int) -> None:
    """Make more room for a session's output in the kernel, where that is possible.

    Some programs exit before the end of their output is read, which is lost if it does not fit.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # the user has many of these already
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, OUTPUT_ROOM)

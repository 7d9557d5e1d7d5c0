"""The fork server as the coordinator sees it: started, given what a session needs, restarted if killed.

Invariants:

- A server that died is replaced only if it was given nothing, so no session is started twice.
- The keepers of a killed server keep running; if one of them is killed too, the coordinator inherits its
  orphans, and ends them before anybody gets the news.
"""

import array
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from isolation.errors import KeeperError
from isolation.keeper import server as keeper_server
from isolation.keeper.adopted import AdoptedOrphans
from isolation.keeper.confined import offer, withdraw
from isolation.keeper.server import NETWORK_OWN, NETWORK_SHARED
from isolation.keeper.wire import Lines, server_gone
from isolation.kernel.process_tree import kill_level
from isolation.kernel.processors import as_argument

GREETING_LIMIT = 10.0
CLOSE_LIMIT = 15.0
"""Longer than a keeper needs before it gives up on a process that SIGKILL does not end."""

_STARTS = 3
"""How often a server is started that ends before it serves, as the kernel does to it without memory."""

_BOOT = "import sys; sys.path.append(sys.argv[1]); from isolation.keeper.server import main; main()"


class ForkServer:
    """The fork server of a run; one task at a time gives it a session."""

    def __init__(self, alive_lock: Path, *, more: Sequence[Path] = (), network: bool = False) -> None:
        self._alive_lock = alive_lock
        self._more = tuple(more)
        self._network = NETWORK_OWN if network else NETWORK_SHARED
        self._lock = trio.Lock()
        self._channel: socket.socket | None = None
        self._process: trio.Process | None = None
        self._greeted = False
        self._orphans = AdoptedOrphans()
        self.keepers: set[int] = set()
        """The keepers that a session was heard of, and whose end was not."""

    async def open(self) -> socket.socket:
        """Start it without waiting until it serves, see `ready`."""
        self._orphans.adopt()
        channel, theirs = socket.socketpair()
        channel.setblocking(False)
        self._channel, self._greeted = channel, False
        try:
            # Shielded: a cancellation in between would leave a server without an owner.
            with theirs, trio.CancelScope(shield=True):
                command = _command(theirs.fileno(), (self._alive_lock, *self._more), self._network)
                self._process = await _start(command, theirs.fileno())
        except KeeperError:
            await self.close()
            raise
        return channel

    async def ready(self) -> None:
        """Wait until it serves; raises KeeperError if it cannot."""
        async with self._lock:
            await self._ready_channel()

    async def hand_over(self, descriptors: Sequence[int]) -> None:
        """Have a keeper forked that takes these descriptors; a killed server is restarted, once."""
        async with self._lock:
            if await self._send(descriptors):
                return
            # A failed send delivered nothing, so a second one cannot start a session twice.
            await self.close()
            if not await self._send(descriptors):
                raise server_gone()

    async def _ready_channel(self) -> socket.socket:
        """Return its socket once it serves; a missing server is started."""
        for _ in range(_STARTS):
            channel = self._channel or await self.open()
            if self._greeted or await self._hear(channel):
                return channel
            # It has ended without a word, so it was given nothing and can be started again.
            await self.close()
        raise KeeperError(
            f"cannot start the fork server: it was killed {_STARTS} times before it could serve",
            hint="is there enough memory? then run or resume again",
        )

    async def _hear(self, channel: socket.socket) -> bool:
        """Whether a new server greets; false if it ends without a word."""
        try:
            self._greeted = await _greet(Lines(channel), self._alive_lock)
        except KeeperError:
            await self.close()
            raise
        if self._greeted:
            offer(channel)
        return self._greeted

    async def _send(self, descriptors: Sequence[int]) -> bool:
        channel = await self._ready_channel()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        while True:
            try:
                channel.sendmsg([b"+"], [rights])
            except BlockingIOError:
                await trio.lowlevel.wait_writable(channel)
            except (BrokenPipeError, ConnectionResetError):
                return False
            else:
                return True

    @property
    def pid(self) -> int:
        """The process that serves now; 0 if none does."""
        return self._process.pid if self._process else 0

    async def end_orphans(self, dying: Sequence[int]) -> None:
        """End what a keeper left that was killed together with its server; `dying` are both."""
        # The lock: no server is being started meanwhile, which would be taken for an orphan.
        with trio.CancelScope(shield=True):
            async with self._lock:
                await trio.to_thread.run_sync(self._orphans.end, dying, {*self.keepers, self.pid})

    async def close(self) -> None:
        """Close the socket and wait for its exit; it ends its keepers first."""
        channel, process = self._channel, self._process
        self._channel = self._process = None
        if channel is not None:
            withdraw(channel)
            trio.lowlevel.notify_closing(channel)
            channel.close()
        if process is not None:
            with trio.move_on_after(CLOSE_LIMIT, shield=True):
                await process.wait()
            if process.returncode is None:
                process.kill()
                with trio.move_on_after(1, shield=True):
                    await process.wait()
        self._orphans.release()


async def _start(command: list[str], descriptor: int) -> trio.Process:
    """Start it in a session of its own, so that the terminal's Ctrl-C does not reach it."""
    try:
        return await trio.lowlevel.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
            start_new_session=True,
        )
    except OSError as error:
        raise KeeperError(
            f"cannot start the fork server: {sys.executable}: {error.strerror}",
            hint="check that this Python can be executed, and the limit on processes (ulimit -u)",
        ) from error


def _command(descriptor: int, alive_locks: Sequence[Path], network: str) -> list[str]:
    root = Path(keeper_server.__file__).parent.parent.parent
    lock, *more = (str(each.absolute()) for each in alive_locks)
    arguments = [str(root), *more, str(descriptor), lock, kill_level(), network, as_argument()]
    # Isolated and without site packages: it starts fast, and no PYTHON* variable or .pth file changes it.
    return [sys.executable, "-I", "-S", "-c", _BOOT, *arguments]


async def _greet(lines: Lines, alive_lock: Path) -> bool:
    """Wait for its first line; false if it has ended without one. Raises KeeperError if it cannot serve."""
    word: str | None = "error it did not answer"
    with trio.move_on_after(GREETING_LIMIT):
        word = await lines.receive()
    if word is None:
        return False
    if word != "ready":
        reason = word.removeprefix("error ")
        raise KeeperError(
            f"cannot start the fork server: {alive_lock}: {reason}",
            hint="check that the file is writable, and that no program holds a lock on it",
        )
    return True

"""The fork server of a run, and the keeper processes that it forks: one supervises each session.

Standard library only: the coordinator starts this file in a fresh interpreter under `-I -S`, once per run.
Neither server nor keeper takes orders by signals; both obey their socket, and the end of file on it. A PID
namespace would kill as reliably, but names made from `$$` in the shared /tmp would then be the same in
parallel stories, so the keeper is a child subreaper instead.

Invariants:

- End of file on a keeper's control socket, whatever caused it, means: kill everything below, now.
- A keeper reports a session's end once, when nothing of it is left (or names what cannot be killed).
- The server holds a second copy of each keeper's socket: if a keeper is killed, the server inherits its
  orphans and ends them before the coordinator gets the news.
- The alive lock is shared by the server and all keepers, and by no session: it is free when all of them, and
  so all that they supervised, are gone.

The protocol, to the server: one byte with three descriptors (control, stdin, output), or one for a
runner of commands, see `keeper/command.py`. To a keeper:
a `HEADER`, then cwd, argv, environment and confinement with NULs between; then lines `stop SECONDS`. From
a keeper: `pid LEADER KEEPER` or `error ERRNO STAGE`, and finally `exit CODE STOPPED [PID…]`, followed by
`denied HOST:PORT…` if its proxy refused some, by `opened PATH…` if it opened what stands in for something
hidden, and by `tried UNNAMED [OPERATION:PATH…]` or `reached [KIND:NAME…]` if its calls were observed. The
server writes `lost CODE` in place of a keeper that could not.
"""

import fcntl
import gc
import math
import os
import select
import signal
import socket
import struct
import sys
import time

from isolation.keeper.command import COMMAND, run_commands
from isolation.keeper.spawn import STAGE_FORK, Request, SpawnError, preload, spawn
from isolation.kernel.process_tree import KEEPER_NAME, SUBREAPER, Tree, adopt_orphans, kill_all, set_name
from isolation.kernel.processors import take

HEADER = struct.Struct("!III")
"""Bytes that follow, number of arguments, number of environment entries; the rest is the confinement."""

DENIED, OPENED = "denied", "opened"
"""Begin what the proxy refused, and which hidden places were opened, in a keeper's last line."""

NETWORK_OWN, NETWORK_SHARED = "own", "shared"

SWEEP_GRACE = 0.5
"""What a finished session left running has this long after SIGTERM to remove its lock files."""
ORPHAN_GRACE = 5.0
"""How long keepers have to end when the coordinator is gone, before they are killed themselves."""

_HANDED_OVER = 3
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT)
_TERMINATE = (signal.SIGTERM, signal.SIGCONT)


def main() -> None:
    """Serve until the coordinator closes its end; argv holds the socket, the lock, the kill level and a word.

    The word says whether sessions have a network of their own, so that what this needs is loaded once.
    Further locks, of other repositories, come before the socket. The last argument names the processors for
    keepers, which leave that of the coordinator's threads to it, and those that sessions may use.
    """
    *more, descriptor, lock, level, network, usable = sys.argv[2:]
    take(usable)
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    try:
        # Blocking, since `wait_for_old_keepers` may hold it for the moment of its probe.
        alive = tuple(os.open(each, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for each in (lock, *more))
        for each in alive:
            fcntl.flock(each, fcntl.LOCK_SH)
    except OSError as error:
        channel.sendall(f"error {error.strerror}\n".encode())
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # For the keepers, too: they inherit it.
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    os.chdir("/")
    if level == SUBREAPER:
        adopt_orphans()
    set_name("apm-server")
    gc.disable()
    server = _Server(channel, level, alive)
    channel.sendall(b"ready\n")
    # After the greeting: the coordinator can already work while this process loads the rest.
    preload(network=network == NETWORK_OWN)
    gc.freeze()
    server.serve()
    server.close()
    os._exit(os.EX_OK)  # nothing is left to clean up


def _open_child_signal() -> int:
    """Return a descriptor that becomes readable when a child ends; `main` has set the handler for that."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


class _Waiter:
    """Waits for a child's end, or for something to read on one other descriptor."""

    def __init__(self, other: int) -> None:
        self._wake = _open_child_signal()
        self._other = other
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(other, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait; return whether the other descriptor is readable."""
        # Rounded up, so that the last millisecond before a deadline is not spent spinning.
        ready = self._poll.poll(None if seconds == math.inf else math.ceil(max(seconds, 0) * 1000))
        for descriptor, _ in ready:
            if descriptor == self._wake:
                os.read(self._wake, 4096)
        return any(descriptor == self._other for descriptor, _ in ready)

    def ignore_other(self) -> None:
        """Wait for children only."""
        self._poll.unregister(self._other)

    def close(self) -> None:
        """Close the descriptors; a forked child does this before it opens its own."""
        os.close(signal.set_wakeup_fd(-1))
        os.close(self._wake)


class _Server:
    """Forks keepers, and ends what a killed keeper left."""

    def __init__(self, channel: socket.socket, level: str, alive: tuple[int, ...]) -> None:
        self._channel = channel
        self._alive = alive
        self._level = level
        self._waiter = _Waiter(channel.fileno())
        self._tree = Tree(os.getpid(), level=level)
        self._keepers: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []

    def serve(self) -> None:
        """Fork a keeper for each request, until the coordinator closes its end."""
        while True:
            self._settle()
            if self._waiter.wait(math.inf) and not self._admit():
                return

    def close(self) -> None:
        """Return when all keepers have exited; their own sockets tell them to."""
        self._waiter.ignore_other()
        self._channel.close()
        deadline = time.monotonic() + ORPHAN_GRACE
        self._settle()
        while self._keepers:
            self._waiter.wait(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                deadline = math.inf
                for pid in self._keepers:
                    os.kill(pid, signal.SIGKILL)
            self._settle()

    def _admit(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, 1, _HANDED_OVER)
        except ConnectionResetError:
            data = b""
        if not data:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if data == COMMAND and len(descriptors) == 1:
            self._fork_runner(descriptors[0])
        elif len(descriptors) == _HANDED_OVER:  # fewer at the limit of open files; the coordinator sees EOF
            control, stdin, output = descriptors
            try:
                self._fork(control, stdin, output)
            except OSError as error:
                _write_line(control, f"error {error.errno} {STAGE_FORK}")
            else:
                descriptors = [stdin, output]
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, control: int, stdin: int, output: int) -> None:
        pid = os.fork()
        if pid:
            self._keepers[pid] = control
            self._tree.spared.add(pid)
            return
        status = os.EX_SOFTWARE
        try:
            self._channel.close()
            self._waiter.close()
            for descriptor in self._keepers.values():
                os.close(descriptor)
            _run_keeper(control, stdin, output, self._level)
            status = os.EX_OK
        finally:
            os._exit(status)

    def _fork_runner(self, control: int) -> None:
        """Fork a runner of commands; it may survive this process, so that no git command is cut off."""
        try:
            pid = os.fork()
        except OSError as error:
            _write_line(control, f"error {error.errno} {STAGE_FORK}")
            return
        if pid:
            self._tree.spared.add(pid)
            return
        try:
            # An idle runner must not make the next run wait: it is no session.
            for alive in self._alive:
                os.close(alive)
            self._channel.close()
            self._waiter.close()
            for descriptor in self._keepers.values():
                os.close(descriptor)
            run_commands(control, self._level, _receive_request)
        finally:
            os._exit(os.EX_OK)

    def _reap(self) -> bool:
        """Reap the dead; true while there is a child that is not a keeper."""
        while reaped := self._reap_one():
            pass
        return reaped is not None and bool(self._tree.children())

    def _reap_one(self) -> bool | None:
        """Reap one of the dead; false if none is, None if there is no child at all."""
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if not pid:
            return False
        self._tree.spared.discard(pid)
        if pid in self._keepers:
            self._ended.append((self._keepers.pop(pid), os.waitstatus_to_exitcode(status)))
        return True

    def _settle(self) -> None:
        # Orphans come only by the death of a child. Their groups must be looked for before that.
        if (self._reap_one() or self._level != SUBREAPER) and self._reap():
            # What a keeper could not end is not waited for again: it would delay every other session.
            self._tree.spared.update(kill_all(self._tree, self._reap, denied_limit=0))
        for control, code in self._ended:
            if code:
                _write_line(control, f"lost {code}")
            os.close(control)
        self._ended.clear()


def _write_line(control: int, line: str) -> None:
    try:
        os.write(control, line.encode() + b"\n")
    except OSError:
        return  # the coordinator is gone, so there is no reader


def _run_keeper(control: int, stdin: int, output: int, level: str) -> None:
    """Start one session and supervise it until nothing of it is left."""
    os.setsid()
    if level == SUBREAPER:
        adopt_orphans()
    set_name(KEEPER_NAME)
    link = socket.socket(fileno=control)
    request = _receive_request(link)
    if request is None:
        return
    # Nothing else before it forks: what it has written to by then is copied a second time.
    try:
        leader, observers, proxy = spawn(request, stdin, output)
    except SpawnError as error:
        number, stage = error.args
        _write_line(control, f"error {number} {stage}")
        return
    os.chdir("/")
    os.close(stdin)
    os.close(output)
    _write_line(control, f"pid {leader} {os.getpid()}")
    keeper = _Supervisor(link, level)
    survivors = keeper.supervise(leader)
    code = -signal.SIGKILL if keeper.returncode is None else keeper.returncode
    denied = (DENIED, *hosts) if proxy and (hosts := proxy.report()) else ()
    witness, openings = observers.witness, observers.openings
    opened = [path.hex() for path in openings.report()] if openings else []
    tried = (witness.word, witness.report()) if witness else ()
    named = (OPENED, *opened) if opened else ()
    words = ("exit", code, int(keeper.stopped), *survivors, *denied, *named, *tried)
    _write_line(control, " ".join(map(str, words)))


def _receive_request(link: socket.socket) -> Request | None:
    """Read what to start; None if the coordinator closed the socket instead."""
    header = _receive_exactly(link, HEADER.size)
    if header is None:
        return None
    size, arguments, entries = HEADER.unpack(header)
    body = _receive_exactly(link, size)
    if body is None:
        return None
    cwd, *rest = body.split(b"\0")
    argv, pairs, confinement = (
        rest[:arguments],
        (entry.partition(b"=") for entry in rest[arguments : arguments + entries]),
        rest[arguments + entries :],
    )
    return cwd, argv, {name: value for name, _, value in pairs}, confinement


def _receive_exactly(link: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            return None
        data += more
    return bytes(data)


class _Supervisor:
    """Ends a tree by SIGTERM, a grace, and SIGKILL: on request, or when its leader has exited."""

    def __init__(self, link: socket.socket, level: str) -> None:
        self.returncode: int | None = None
        self.stopped = False
        self._link = link
        self._waiter = _Waiter(link.fileno())
        self._tree = Tree(os.getpid(), level=level)
        self._leader = 0
        self._deadline = math.inf
        self._orders = b""

    def supervise(self, leader: int) -> list[int]:
        """Wait for the end of the tree, or enforce it; return what cannot be killed."""
        self._leader = leader
        self._tree.groups.add(leader)
        while self._reap():
            # A leader that exits ends its session: what it left running gets a short grace.
            if self.returncode is not None and self._deadline == math.inf:
                self._terminate(SWEEP_GRACE)
            remaining = self._deadline - time.monotonic()
            if remaining <= 0:
                return kill_all(self._tree, self._reap)
            if self._waiter.wait(remaining):
                self._read_orders()
        return []

    def _reap(self) -> bool:
        """Reap the dead; true while the tree has a member."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return bool(self._tree.strays())
            if not pid:
                return True
            if pid == self._leader and self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(status)

    def _read_orders(self) -> None:
        self._reap()
        try:
            data = self._link.recv(4096)
        except OSError:
            data = b""
        if self.returncode is None:
            self.stopped = True
        if not data:  # EOF stays readable, and would wake the poll forever
            self._waiter.ignore_other()
            self._deadline = -math.inf
            return
        *lines, self._orders = (self._orders + data).split(b"\n")
        for line in lines:
            self._terminate(float(line.removeprefix(b"stop ")))

    def _terminate(self, grace: float) -> None:
        """Ask every process once to end, stopped ones too; a later call may only shorten the grace."""
        if self._deadline == math.inf:
            self._tree.send(_TERMINATE, self._tree.members())
        self._deadline = min(self._deadline, time.monotonic() + grace)

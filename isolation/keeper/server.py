"""The fork server of a run, and the keeper processes that it forks: one stands over each session.

Standard library only: the coordinator starts this file in a fresh interpreter under `-I -S`, once a
run. Neither server nor keeper takes orders by signals; both obey their socket, and the end of file on
it. A PID namespace would kill as surely, but names made from `$$` in the shared /tmp would then be
the same in parallel stories, so the keeper is a child subreaper instead.

Invariants:

- End of file on a keeper's control socket, whoever caused it, means: kill everything below, now.
- A keeper reports a session's end once, when nothing of it is left (or names what cannot be killed).
- The server holds a second copy of each keeper's socket: should a keeper be killed, its orphans fall
  to the server, which ends them before the coordinator hears of it.
- The alive lock is shared by the server and all keepers, and by no session: it is free when all of
  them, and so all that they stood over, are gone.

On the wire, to the server: one byte with three descriptors (control, stdin, output). To a keeper:
a `HEADER`, then cwd, argv, environment and confinement with NULs between; then lines `stop SECONDS`. From
a keeper: `pid LEADER KEEPER` or `error ERRNO STAGE`, and at last `exit CODE STOPPED [PID…]`, with
`tried UNNAMED [ACT:PATH…]` after it where a witness looked on. The server writes `lost CODE` in place of a
keeper that could not.
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

from isolation.keeper.spawn import STAGE_FORK, Request, SpawnError, preload, spawn
from isolation.kernel.process_tree import KEEPER_NAME, SUBREAPER, Tree, adopt_orphans, kill_all, set_name

HEADER = struct.Struct("!III")
"""Bytes that follow, number of arguments, number of environment entries; the rest is the confinement."""

TRIED = "tried"
"""Begins what a witness saw, in a keeper's last line."""

SWEEP_GRACE = 0.5
"""What a finished session left running has this long after SIGTERM to remove its lock files."""
ORPHAN_GRACE = 5.0
"""How long keepers have to end when the coordinator is gone, before they are killed themselves."""

_HANDED_OVER = 3
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT)
_TERMINATE = (signal.SIGTERM, signal.SIGCONT)


def main() -> None:
    """Serve until the coordinator closes its end; argv holds the socket, the lock and the kill level."""
    descriptor, lock, level = sys.argv[-3:]
    door = socket.socket(fileno=int(descriptor))
    door.set_inheritable(False)
    try:
        # Blocking, since `wait_for_old_keepers` may hold it for the moment of its probe.
        fcntl.flock(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), fcntl.LOCK_SH)
    except OSError as error:
        door.sendall(f"error {error.strerror}\n".encode())
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    if level == SUBREAPER:
        adopt_orphans()
    set_name("apm-server")
    gc.disable()
    server = _Server(door, level)
    door.sendall(b"ready\n")
    preload()
    gc.freeze()
    server.serve()
    server.close()
    os._exit(os.EX_OK)  # nothing is left that would have to be put in order


def _wake_on_child() -> int:
    """Give a descriptor that becomes readable when a child ends."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return readable


class _Bell:
    """Waits for a child's end, or for something to read on one other descriptor."""

    def __init__(self, other: int) -> None:
        self._wake = _wake_on_child()
        self._other = other
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(other, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Tell whether the other descriptor has something."""
        # Rounded up, lest the last millisecond before a deadline be spent spinning.
        ready = self._poll.poll(None if seconds == math.inf else math.ceil(max(seconds, 0) * 1000))
        for descriptor, _ in ready:
            if descriptor == self._wake:
                os.read(self._wake, 4096)
        return any(descriptor == self._other for descriptor, _ in ready)

    def ignore_other(self) -> None:
        """Wait for children only."""
        self._poll.unregister(self._other)

    def close(self) -> None:
        """Give the descriptors back; a fork does this before it has a bell of its own."""
        os.close(signal.set_wakeup_fd(-1))
        os.close(self._wake)


class _Server:
    """Forks keepers, and ends what a killed keeper left."""

    def __init__(self, door: socket.socket, level: str) -> None:
        self._door = door
        self._level = level
        self._bell = _Bell(door.fileno())
        self._tree = Tree(os.getpid(), level=level)
        self._keepers: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []

    def serve(self) -> None:
        """Fork a keeper for each request, until there will be no more."""
        while True:
            self._settle()
            if self._bell.wait(math.inf) and not self._admit():
                return

    def close(self) -> None:
        """Leave when all keepers have left; they are told by their own sockets."""
        self._bell.ignore_other()
        self._door.close()
        deadline = time.monotonic() + ORPHAN_GRACE
        self._settle()
        while self._keepers:
            self._bell.wait(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                deadline = math.inf
                for pid in self._keepers:
                    os.kill(pid, signal.SIGKILL)
            self._settle()

    def _admit(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._door, 1, _HANDED_OVER)
        except ConnectionResetError:
            data = b""
        if not data:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if len(descriptors) == _HANDED_OVER:  # fewer at the limit of open files; the coordinator sees EOF
            control, stdin, output = descriptors
            try:
                self._fork(control, stdin, output)
            except OSError as error:
                _say(control, f"error {error.errno} {STAGE_FORK}")
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
            self._door.close()
            self._bell.close()
            for descriptor in self._keepers.values():
                os.close(descriptor)
            _keep(control, stdin, output, self._level)
            status = os.EX_OK
        finally:
            os._exit(status)

    def _reap(self) -> bool:
        """Collect the dead; true while something is below that is no keeper."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return bool(self._tree.children())
            self._tree.spared.discard(pid)
            if pid in self._keepers:
                self._ended.append((self._keepers.pop(pid), os.waitstatus_to_exitcode(status)))

    def _settle(self) -> None:
        if self._reap():
            # What a keeper could not end is not waited for again, lest it hold up every other session.
            self._tree.spared.update(kill_all(self._tree, self._reap, denied_limit=0))
        for control, code in self._ended:
            if code:
                _say(control, f"lost {code}")
            os.close(control)
        self._ended.clear()


def _say(control: int, line: str) -> None:
    try:
        os.write(control, line.encode() + b"\n")
    except OSError:
        return  # the coordinator is gone, and with it everyone who would want to know


def _keep(control: int, stdin: int, output: int, level: str) -> None:
    """Start one session and stand over it until nothing of it is left."""
    os.setsid()
    if level == SUBREAPER:
        adopt_orphans()
    set_name(KEEPER_NAME)
    link = socket.socket(fileno=control)
    request = _receive_request(link)
    if request is None:
        return
    keeper = _Keeper(link, level)
    try:
        leader, witness = spawn(request, stdin, output)
    except SpawnError as error:
        number, stage = error.args
        _say(control, f"error {number} {stage}")
        return
    os.chdir("/")
    os.close(stdin)
    os.close(output)
    _say(control, f"pid {leader} {os.getpid()}")
    survivors = keeper.stand_over(leader)
    code = -signal.SIGKILL if keeper.returncode is None else keeper.returncode
    tried = (TRIED, witness.report()) if witness else ()
    _say(control, " ".join(map(str, ("exit", code, int(keeper.stopped), *survivors, *tried))))


def _receive_request(link: socket.socket) -> Request | None:
    """Read what to start; None when the coordinator thought better of it."""
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


class _Keeper:
    """The ladder: SIGTERM, grace, SIGKILL; climbed at a request, or for what a leader left."""

    def __init__(self, link: socket.socket, level: str) -> None:
        self.returncode: int | None = None
        self.stopped = False
        self._link = link
        self._bell = _Bell(link.fileno())
        self._tree = Tree(os.getpid(), level=level)
        self._leader = 0
        self._deadline = math.inf
        self._orders = b""

    def stand_over(self, leader: int) -> list[int]:
        """Wait for the end of the tree, or bring it about; gives back what cannot be killed."""
        self._leader = leader
        self._tree.groups.add(leader)
        while self._reap():
            if self.returncode is not None and self._deadline == math.inf:
                self._terminate(SWEEP_GRACE)
            remaining = self._deadline - time.monotonic()
            if remaining <= 0:
                return kill_all(self._tree, self._reap)
            if self._bell.wait(remaining):
                self._obey()
        return []

    def _reap(self) -> bool:
        """Collect the dead; true while something is below."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return bool(self._tree.strays())
            if not pid:
                return True
            if pid == self._leader and self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(status)

    def _obey(self) -> None:
        self._reap()
        try:
            data = self._link.recv(4096)
        except OSError:
            data = b""
        if self.returncode is None:
            self.stopped = True
        if not data:
            self._bell.ignore_other()
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

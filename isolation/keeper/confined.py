"""Commands under a confinement, for callers that block: what the coordinator itself runs on a story's tree.

They go through the run's fork server if there is one, otherwise through one that is started on first use and
ends with this process. A command is never cut off: it also survives its coordinator.

This module must not import trio: commands that only show something load it, too.
"""

import atexit
import errno
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from isolation.errors import CommandKilledError, KeeperError
from isolation.keeper import server as keeper_server
from isolation.keeper.command import COMMAND
from isolation.keeper.server import HEADER, NETWORK_SHARED
from isolation.keeper.spawn import CLOSED, HIDDEN, NETWORK, OPEN, SHOWN, SOURCE, STAND_IN, STANDS
from isolation.kernel.process_tree import kill_level
from isolation.kernel.processors import as_argument
from isolation.model import Confinement

_BOOT = "import sys; sys.path.append(sys.argv[1]); from isolation.keeper.server import main; main()"
_NO_LOCK = os.devnull
_EXIT_LIMIT = 5.0
LIMIT = 1800.0
"""How long a command may take: a session can leave what makes it wait for ever."""
_LOOK_SECONDS = 15.0
"""After how long it is looked at why a command takes so long."""
_READ_BY_GIT = frozenset({".gitattributes", ".gitignore", ".gitmodules"})
_lock = threading.Lock()
_servers: list[tuple[int, socket.socket]] = []
"""The fork servers that this process can ask, the newest last, each with the pid of its owner: a fork of
this process must not use what its parent opened."""
_KEPT = 8
_STALE = tuple(
    text.encode()
    for text in (os.strerror(errno.EROFS), f"unable to create temporary file: {os.strerror(errno.ENOENT)}")
)
_idle: list[tuple["Key", socket.socket]] = []
"""Runners without a command, the last used one last."""

Key = tuple[int, tuple[bytes, ...], tuple[tuple[int, int], ...]]


class Ended(Struct, frozen=True, kw_only=True):
    """A command that has ended, with what it wrote."""

    returncode: int
    stdout: bytes
    stderr: bytes


def offer(channel: socket.socket) -> None:
    """Let commands go through this fork server."""
    with _lock:
        _servers.append((os.getpid(), channel))


def withdraw(channel: socket.socket) -> None:
    """Let no more commands go through this fork server, and end the runners that have nothing to do."""
    with _lock:
        while _idle:
            _idle.pop()[1].close()
        _servers[:] = [(pid, each) for pid, each in _servers if each is not channel]


def forget_servers() -> None:
    """Ask no fork server that is there now any more: this process has other mounts than they."""
    with _lock:
        while _idle:
            _idle.pop()[1].close()
        while _servers:
            _servers.pop()[1].close()


def run_confined(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    confinement: Confinement,
    stdin: bytes | None = None,
    key: Key | None = None,
) -> Ended:
    """Run a command to its end, and end what it left running; raises KeeperError if it cannot be started.

    `key` is that of the confinement, for a caller who knows it.
    """
    key = key or key_of(confinement)
    ended = _run(argv, cwd, env, confinement, key=key, stdin=stdin)
    if ended.returncode and any(sign in ended.stderr for sign in _STALE):
        # A folder that was removed and made again can have the number of the old one, on which the mounts of
        # an idle runner still are. Such a command has not begun to write.
        _end_idle(key)
        ended = _run(argv, cwd, env, confinement, key=key_of(confinement), stdin=stdin)
    return ended


def _run(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    confinement: Confinement,
    *,
    key: Key,
    stdin: bytes | None,
) -> Ended:
    opened: list[int] = []
    try:
        opened += [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
        if stdin:
            _fill(opened[0], stdin)
        link = _greeted(confinement, key, opened)
        try:
            answer = _ask(link, _encode((str(cwd), *argv), env, ()), cwd)
        except TimeoutError as error:
            link.close()  # the runner notices, and ends the command
            fifo = _fifo_in(cwd)
            raise KeeperError(
                f"{argv[0]} waits for {fifo}, which is not a file"
                if fifo
                else f"{argv[0]} did not end within {LIMIT / 60:.0f} minutes in {cwd}",
                hint="remove it, then run again" if fifo else "does a filter hang there?",
            ) from error
        except BaseException:
            link.close()
            raise
        _put_back(key, link, usable=bool(answer))
        return _read_answer(answer, argv[0], opened)
    except OSError as error:
        raise KeeperError(
            f"cannot start {argv[0]}: {error.strerror}", hint="check the limit on open files (ulimit -n)"
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _fill(descriptor: int, data: bytes) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)


def _encode(texts: Sequence[str], env: Mapping[str, str], confinement: Sequence[bytes]) -> bytes:
    entries = [f"{name}={value}" for name, value in env.items()]
    body = b"\0".join((*map(os.fsencode, (*texts, *entries)), *confinement))
    return HEADER.pack(len(body), len(texts) - 1, len(entries)) + body


def _runner(confinement: Confinement, key: Key) -> socket.socket:
    """Take an idle runner with this confinement, or have one forked."""
    with _lock:
        idle = [entry for entry in _idle if entry[0] == key]
        if idle:
            _idle.remove(idle[-1])
            return idle[-1][1]
    link, theirs = socket.socketpair()
    with theirs:
        _hand_over(theirs.fileno())
    answer = _ask(link, _encode(("/",), {}, _marked(confinement)))
    if answer != "ready":
        link.close()
        _read_answer(answer, "a confined command", [])
    return link


def _greeted(confinement: Confinement, key: Key, opened: list[int]) -> socket.socket:
    """Return a runner with the streams of its next command; one that was killed while idle is replaced."""
    while True:
        link = _runner(confinement, key)
        link.settimeout(_LOOK_SECONDS)
        try:
            socket.send_fds(link, [b"+"], opened)
        except (BrokenPipeError, ConnectionResetError):
            link.close()
        else:
            return link


def _end_idle(key: Key) -> None:
    with _lock:
        for entry in [each for each in _idle if each[0] == key]:
            _idle.remove(entry)
            entry[1].close()


def _put_back(key: Key, link: socket.socket, *, usable: bool) -> None:
    """Keep a runner for the next command; the one that was idle for longest makes room."""
    with _lock:
        if usable:
            _idle.append((key, link))
        else:
            link.close()
        while len(_idle) > _KEPT:
            _idle.pop(0)[1].close()


def key_of(confinement: Confinement) -> Key:
    """Return what distinguishes confinements: also the folders that are there now, since a mount stays."""
    places = []
    for path in (*confinement.read_only, *confinement.writable, *confinement.sources.values()):
        try:
            found = path.lstat()
        except OSError:
            continue
        places.append((found.st_dev, found.st_ino))
    return (os.getpid(), tuple(_marked(confinement)), tuple(places))


def _marked(confinement: Confinement) -> list[bytes]:
    closed = (CLOSED + os.fsencode(path) for path in confinement.read_only)
    opened = (OPEN + os.fsencode(path) for path in confinement.writable)
    pairs: list[tuple[tuple[bytes, Path | str], ...]]
    pairs = [((STANDS, path), (SOURCE, source)) for path, source in confinement.sources.items()]
    pairs += [((HIDDEN, path), (STAND_IN, each.stand_in)) for path, each in confinement.hidden.items()]
    standing = (mark + os.fsencode(path) for pair in pairs for mark, path in pair)
    shown = (SHOWN + os.fsencode(path) for path in confinement.shown)
    # A network of its own has no way out here: what a story's tree makes git run needs none.
    network = [NETWORK] if confinement.network is not None else []
    return [confinement.means.encode(), *closed, *opened, *standing, *shown, *network]


def _hand_over(control: int) -> None:
    """Have a fork server fork a runner; a server that is gone is replaced."""
    with _lock:
        while True:
            owned = [channel for pid, channel in _servers if pid == os.getpid()]
            channel = owned[-1] if owned else _start()
            with suppress(BrokenPipeError, ConnectionResetError, ValueError):
                _send(channel, control)
                return
            _servers[:] = [(pid, each) for pid, each in _servers if each is not channel]


def _send(channel: socket.socket, control: int) -> None:
    while True:
        try:
            socket.send_fds(channel, [COMMAND], [control])
        except BlockingIOError:
            select.select([], [channel], [])
        else:
            return


def _start() -> socket.socket:
    """Start a fork server of our own; it ends when this process does."""
    root = Path(keeper_server.__file__).parent.parent.parent
    channel, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        arguments = [str(root), str(number), _NO_LOCK, kill_level(), NETWORK_SHARED, as_argument()]
        process = subprocess.Popen(  # noqa: S603  our own module
            [sys.executable, "-I", "-S", "-c", _BOOT, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[number],
            start_new_session=True,
        )
    _servers.append((os.getpid(), channel))
    atexit.register(_end, os.getpid(), channel, process)
    return channel


def _end(owner: int, channel: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    """Let a fork server of our own go; it ends by itself when all its sockets are closed."""
    if owner != os.getpid():
        return
    for _, link in _idle:
        link.close()
    channel.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_LIMIT)


def _ask(link: socket.socket, request: bytes, cwd: Path | None = None) -> str:
    """Send a request and return the one line of the answer; empty if the runner is gone.

    With a tree, a command that waits for a FIFO there is given up before the limit.
    """
    answer, deadline = b"", time.monotonic() + LIMIT
    with suppress(BrokenPipeError, ConnectionResetError):
        link.sendall(request)
        while not answer.endswith(b"\n"):
            try:
                more = link.recv(4096)
            except TimeoutError:
                if time.monotonic() > deadline or (cwd and _fifo_in(cwd)):
                    raise
                continue
            if not more:
                break
            answer += more
    return answer.decode().rstrip("\n")


def _fifo_in(tree: Path) -> str:
    """Return a FIFO where git reads a file in each folder; empty if there is none."""
    for folder, _, files in os.walk(tree):
        for name in _READ_BY_GIT.intersection(files):
            path = Path(folder, name)
            if path.is_fifo():
                return str(path)
    return ""


def _read_answer(answer: str, program: str, opened: list[int]) -> Ended:
    match answer.split():
        case ["exit", code]:
            out, err = (_content(descriptor) for descriptor in opened[1:])
            return Ended(returncode=int(code), stdout=out, stderr=err)
        case ["error", number, stage]:
            raise KeeperError(f"cannot start {program}: {stage}: {os.strerror(int(number))}")
        case _:
            raise CommandKilledError(
                f"the process that ran {program} was killed from outside",
                hint="is there enough memory? resume the run",
            )


def _content(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()

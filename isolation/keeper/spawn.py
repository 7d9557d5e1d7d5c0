"""How a keeper starts a session's leader: own session, default signals, three descriptors, its confinement.

Standard library only. The confinement is applied in the child alone, between fork and exec: the keeper
itself, and so its right to end what is below, is not affected. If it cannot be applied, nothing is executed.
A witness is optional: without one the session still starts, and its report says that refused writes were not
observed. The proxy of a session with a network of its own is not.
"""

import _signal  # type: ignore[import-not-found]  # the stubs do not know it
import errno
import os
import signal
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from isolation.kernel.noticed.listener import Listener
from isolation.kernel.noticed.openings import Openings
from isolation.kernel.noticed.reaching import Reaching
from isolation.kernel.noticed.reaching import install as install_reaching
from isolation.kernel.processors import everywhere, take_all
from isolation.kernel.syscall_filter import install
from isolation.kernel.witness import Witness

TYPE_CHECKING = False  # `typing` would be loaded for this alone, before every run
if TYPE_CHECKING:
    from isolation.network.proxy import Proxy

STAGE_FORK, STAGE_FOLDER, STAGE_PROGRAM, STAGE_GUARD = "fork", "folder", "program", "guard"

MOUNTS = b"mounts"
CLOSED, OPEN, TARGET, UPPER, WORK, WITNESSED = b"-", b"+", b"t", b"u", b"w", b"*"
STANDS, SOURCE = b"@", b"<"
HIDDEN, STAND_IN, SHOWN, NOTICED = b"h", b"s", b"v", b"o"
NETWORK, ALLOWED, UPSTREAM, DIRECT = b"n", b"a", b"p", b"d"
"""Marks before the paths and hosts of a confinement, whose first text is the means."""
_PATHS = (CLOSED, OPEN, TARGET, UPPER, WORK, WITNESSED, STANDS, SOURCE, HIDDEN, STAND_IN, SHOWN)
_MARKS = (*_PATHS, NOTICED, NETWORK, ALLOWED, UPSTREAM, DIRECT)

_TO_PROXY, _WATCHES = b"\0", b"\1"
"""Go with the sockets that a session's proxy takes over, and with its watches; no error begins with them."""
_SIZE = struct.Struct("=I")
_MOST_LISTENERS = 250
"""The kernel takes no more descriptors at once."""

Request = tuple[bytes, list[bytes], dict[bytes, bytes], list[bytes]]
"""Folder, arguments, environment, and the texts of the confinement, if any."""

Paths = dict[bytes, list[bytes]]
"""The paths and hosts of a confinement, by their marks."""

Streams = tuple[int, int, int]
"""The descriptors that become standard input, output and error."""


class Observers:
    """What observes a session: its calls, and which of the things that stand in for hidden ones it opens."""

    def __init__(self) -> None:
        self.witness: Listener | None = None
        self.openings: Openings | None = None


Started = tuple[int, Observers, "Proxy | None"]
"""The pid of a leader that runs, what observes it, and its way out to the network."""

_ignored_signals: list[int] = []
"""What a fork server ignores, found once for all processes that it forks: some sixty questions."""


class SpawnError(Exception):
    """The session's program did not start; holds an errno and the stage."""


def spawn(request: Request, stdin: int, output: int, errors: int | None = None) -> Started:
    """Start the leader. Without `errors` both of its output streams are `output`."""
    streams = (stdin, output, output if errors is None else errors)
    if request[3]:
        return _start_confined(request, streams)
    return _start(request, streams), Observers(), None


def spawn_on_terminal(request: Request) -> Started:
    """Start a confined program with our streams, which keeps our terminal: it leads no session of its own."""
    return _start_confined(request, (0, 1, 2), own_session=False)


def preload(*, network: bool) -> None:
    """Do once what all processes that are forked later need: import what confines, find calls and signals."""
    _ignored_signals[:] = _ignored()
    # Without something of this, a session that must be confined fails with the reason.
    with suppress(ImportError, OSError, AttributeError):
        import isolation.kernel.landlock
        import isolation.kernel.mounts
        import isolation.kernel.noticed.openings
        import isolation.kernel.seccomp
        import isolation.kernel.separation

        # To find a call of the C library takes longer than the call.
        for library, names in (
            (isolation.kernel.landlock.LIBC, ("syscall", "prctl")),
            (isolation.kernel.mounts.LIBC, ("syscall", "prctl", "unshare", "mount", "capget", "capset")),
            (isolation.kernel.seccomp.LIBC, ("syscall",)),
            (isolation.kernel.noticed.openings.LIBC, ("inotify_init1", "inotify_add_watch")),
        ):
            for name in names:
                getattr(library, name)
        if network:
            import isolation.kernel.socket_families
            import isolation.network.namespace
            import isolation.network.proxy


def confine(texts: Sequence[bytes]) -> list[socket.socket]:
    """Confine this process; raises OSError if that fails.

    Returns what listens in its network, if it gets one of its own: the proxy takes over these sockets.
    """
    return _confine(texts[0], _by_mark(texts))


def _confine(means: bytes, paths: Paths) -> list[socket.socket]:
    from isolation.kernel.landlock import forbid_new_privileges, restrict
    from isolation.kernel.mounts import NETWORK_ADMIN, drop_capabilities, isolate_mounts
    from isolation.kernel.separation import separate

    network, listeners = bool(paths[NETWORK]), []
    if means == MOUNTS:
        overlays = list(zip(paths[TARGET], paths[UPPER], paths[WORK], strict=True))
        sources = dict(zip(paths[STANDS], paths[SOURCE], strict=True))
        hidden = dict(zip(paths[HIDDEN], paths[STAND_IN], strict=True))
        isolate_mounts(
            paths[CLOSED],
            paths[OPEN],
            overlays[0] if overlays else None,
            sources,
            (hidden, paths[SHOWN]),
            network=network,
        )
        listeners = _enter_network(paths[ALLOWED]) if network else []
        forbid_new_privileges()
    elif network:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), "a network of its own needs mounts")
    else:
        restrict(paths[CLOSED], paths[OPEN])
    drop_capabilities((NETWORK_ADMIN,) if network else ())
    separate(sockets=bool(paths[HIDDEN]))
    if network:
        from isolation.kernel.socket_families import allow_usual_sockets

        allow_usual_sockets()
    return listeners


def _enter_network(allowed: Sequence[bytes]) -> list[socket.socket]:
    """Make the network that this process has just got usable, and return what listens in it."""
    from isolation.network.namespace import PROXY_PORT, listen, raise_loopback
    from isolation.network.rules import local_ports

    raise_loopback()
    return listen(dict.fromkeys((PROXY_PORT, *local_ports(map(os.fsdecode, allowed)))))


def _by_mark(texts: Sequence[bytes]) -> Paths:
    found: Paths = {mark: [] for mark in _MARKS}
    for text in texts[1:]:
        found[text[:1]].append(text[1:])
    return found


def _start(request: Request, streams: Streams) -> int:
    """Start it unconfined.

    Not by fork and exec: this call shares the keeper's memory until the program runs, which saves
    half of the cost, and it returns an error of the exec directly.
    """
    cwd, argv, env, _ = request
    try:
        os.chdir(cwd)
    except OSError as error:
        raise SpawnError(error.errno, STAGE_FOLDER) from error
    moves = [(os.POSIX_SPAWN_DUP2, source, to) for to, source in enumerate(streams)]
    failure = errno.ENOENT
    for path in _candidates(argv[0], env):
        if not os.access(path, os.X_OK):  # far cheaper than an attempt
            failure = errno.EACCES if os.access(path, os.F_OK) else failure
            continue
        try:
            # Every other descriptor of ours closes on exec.
            with everywhere():
                return os.posix_spawn(
                    path, argv, env, file_actions=moves, setsid=True, setsigmask=(), setsigdef=_ignored()
                )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            failure = errno.EACCES
        except OSError as error:
            raise SpawnError(error.errno, STAGE_PROGRAM) from error
    raise SpawnError(failure, STAGE_PROGRAM)


def _start_confined(request: Request, streams: Streams, *, own_session: bool = True) -> Started:
    """Fork, confine the child, and wait until it executes or reports why not."""
    paths = _by_mark(request[3])  # before the fork, for both processes
    parent_end, child_end = socket.socketpair()
    try:
        pid = os.fork()
    except OSError as error:
        parent_end.close()
        child_end.close()
        raise SpawnError(error.errno, STAGE_FORK) from error
    if pid == 0:
        failure = f"{errno.EIO} {STAGE_GUARD}"
        try:
            _exec_leader(request, paths, streams, child_end, own_session=own_session)
        except SpawnError as error:
            failure = "{} {}".format(*error.args)
        finally:
            child_end.sendall(failure.encode())
            os._exit(os.EX_SOFTWARE)
    child_end.close()
    try:
        words, observers, proxy = _read_child(parent_end, paths, pid)
    except RuntimeError:  # no thread can be started, so the filtered calls would never be answered
        os.kill(pid, signal.SIGKILL)
        words, observers, proxy = [b"%d" % errno.EAGAIN, STAGE_FORK.encode()], Observers(), None
    if words:
        os.waitpid(pid, 0)
        raise SpawnError(int(words[0]), words[1].decode())
    return pid, observers, proxy


def _read_child(
    parent_end: socket.socket, paths: Paths, pid: int
) -> "tuple[list[bytes], Observers, Proxy | None]":
    """Read what a child sends until its exec closes the socket: what listens for it, and any error."""
    words, observers, proxy = b"", Observers(), None
    with parent_end:
        while True:
            data, descriptors, _, _ = socket.recv_fds(parent_end, 256, _MOST_LISTENERS)
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            if not data:
                return words.split(), observers, proxy
            if data.startswith(_TO_PROXY):
                proxy = _proxy(descriptors, paths)
                proxy.start()
                data = data[len(_TO_PROXY) :]
            elif data.startswith(_WATCHES):
                watches, data = _read_watches(parent_end, data[len(_WATCHES) :])
                if descriptors:  # none at the limit of open files
                    observers.openings = Openings(descriptors[0], zip(watches, paths[HIDDEN], strict=True))
            elif descriptors:
                observers.witness = _listener(descriptors[0], paths, pid)
                observers.witness.start()
            words += data


def _read_watches(parent_end: socket.socket, data: bytes) -> tuple[Sequence[int], bytes]:
    """Read the numbers of watches; return what follows them, too."""
    end = _SIZE.size + _SIZE.unpack_from(data)[0]
    # Not a byte more: a descriptor that comes with the next one would be lost.
    while len(data) < end and (more := parent_end.recv(end - len(data))):
        data += more
    return memoryview(data[_SIZE.size : end]).cast("i"), data[end:]


def _listener(descriptor: int, paths: Paths, pid: int) -> Listener:
    if paths[WITNESSED]:
        return Witness(descriptor, paths[WITNESSED][0], paths[CLOSED], paths[OPEN])
    return Reaching(descriptor, pid, paths[HIDDEN], network=bool(paths[NETWORK]))


def _proxy(descriptors: Sequence[int], paths: Paths) -> "Proxy":
    from isolation.network.proxy import Proxy, Upstream

    upstream = [Upstream(os.fsdecode(url), map(os.fsdecode, paths[DIRECT])) for url in paths[UPSTREAM]]
    listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    return Proxy(listeners, [os.fsdecode(entry) for entry in paths[ALLOWED]], *upstream[:1])


def _notice(paths: Paths, child_end: socket.socket) -> None:
    """Have the kernel report openings of what stands in for something hidden, if wanted and possible.

    Here, where the calls of the C library are needed anyway: the keeper would copy the memory that they use.
    """
    if not paths[NOTICED]:
        return
    from isolation.kernel.noticed.openings import watch

    descriptor, watches = watch(paths[STAND_IN])
    if descriptor >= 0:
        numbers = watches.tobytes()
        socket.send_fds(child_end, [_WATCHES + _SIZE.pack(len(numbers)) + numbers], [descriptor])
        os.close(descriptor)


def _filter(means: bytes, paths: Paths, child_end: socket.socket) -> None:
    """Install the filter that reports changes of files or what is reached for, if wanted and possible.

    The kernel has room for one that reports.
    """
    if not paths[WITNESSED] and not paths[NOTICED]:
        return
    try:
        # Landlock allows changes of attributes, so they are no refused writes: the tree watch finds them.
        witnessed = bool(paths[WITNESSED])
        listener = install(attributes=means == MOUNTS) if witnessed else install_reaching()
    except OSError:
        return
    socket.send_fds(child_end, [b" "], [listener])
    os.close(listener)


def _exec_leader(
    request: Request, paths: Paths, streams: Streams, child_end: socket.socket, *, own_session: bool
) -> None:
    """Turn this process into the session's leader; returns only by an error."""
    cwd, argv, env, confinement = request
    if own_session:
        os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (*_ignored(), signal.SIGCHLD):
        # Not by the module's own function, which makes each answer a member of an enumeration.
        _signal.signal(number, _signal.SIG_DFL)
    for to, source in enumerate(streams):
        os.dup2(source, to)
    stage = STAGE_GUARD
    try:
        _notice(paths, child_end)
        listeners = _confine(confinement[0], paths)
        if listeners:
            descriptors = [listener.fileno() for listener in listeners]
            socket.send_fds(child_end, [_TO_PROXY], descriptors)
        _filter(confinement[0], paths, child_end)
        stage = STAGE_FOLDER
        os.chdir(cwd)
    except OSError as error:
        raise SpawnError(error.errno or errno.EPERM, stage) from error
    take_all()
    failure = errno.ENOENT
    for path in _candidates(argv[0], env):
        try:
            os.execve(path, argv, env)  # noqa: S606  the program is what the caller asked for
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            failure = errno.EACCES
        except OSError as error:
            raise SpawnError(error.errno, STAGE_PROGRAM) from error
    raise SpawnError(failure, STAGE_PROGRAM)


def _ignored() -> list[int]:
    return _ignored_signals or [
        number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN
    ]


def _candidates(program: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    """Return where a program may be, by the session's own PATH, as a shell would."""
    if b"/" in program:
        return [program]
    folders = env.get(b"PATH", os.defpath.encode()).split(b":")
    return [(folder or b".") + b"/" + program for folder in folders]

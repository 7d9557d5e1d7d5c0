"""One real attempt to write where it is forbidden, in a throwaway folder and a process of its own.

Run as a program: `FOLDER TEXT…` applies the confinement that the texts describe to itself and then does what
a session must not do to `FOLDER/tree`, to its parent and to a process that is confined like another session.
It prints which operations succeeded; the caller inspects the folder and judges. With a tree to witness, a
shell does it instead, and the report of its witness is printed. With a network of its own it tries to leave
that. Standard library only.
"""

# Without pathlib: an interpreter is started for this alone, and a run waits for it.
# ruff: noqa: PTH108, PTH116, PTH118, PTH123

import os
import resource
import socket
import sys
from collections.abc import Callable, Sequence

from isolation.keeper.spawn import NETWORK, WITNESSED, SpawnError, confine, spawn


def main() -> None:
    """Try as a program of its own."""
    attempt(sys.argv[2:])


def attempt(arguments: Sequence[str]) -> None:
    """Confine this process, try every operation, print those that succeeded."""
    folder, *texts = map(os.fsencode, arguments)
    tree = os.path.join(folder, b"tree")
    if WITNESSED + tree in texts:
        os.write(1, _witnessed(tree, texts).encode())
        return
    outside = socket.create_server(("127.0.0.1", 0)) if NETWORK in texts else None
    neighbor = _start_neighbor(texts[0])
    try:
        confine(texts)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        os.write(1, f"failed {where}{error.strerror}".encode())
        return
    if outside is not None:
        os.write(1, " ".join(_ways(outside.getsockname()[1])).encode())
        return
    operations: dict[str, Callable[[], object]] = {
        "write": lambda: _write(tree + b"/kept"),
        "truncate": lambda: os.truncate(tree + b"/kept", 0),
        "create": lambda: _write(tree + b"/made"),
        "delete": lambda: os.unlink(tree + b"/doomed"),
        "own": lambda: _write(tree + b"/own/mine"),
        "moved": lambda: _write(os.path.join(folder, b"place", b"seen")),
        "trace": lambda: os.stat(f"/proc/{neighbor}/cwd/."),
        "signal": lambda: os.kill(neighbor, 0),
        "end": lambda: os.kill(os.getppid(), 0),
        "limit": lambda: _limit(neighbor),
    }
    os.write(1, " ".join(name for name, operation in operations.items() if _works(operation)).encode())


def _ways(port: int) -> list[str]:
    """Return which connections work: to the machine's loopback, to its own, and around any network."""
    own = socket.create_server(("127.0.0.1", 0))
    operations: dict[str, Callable[[], object]] = {
        "outside": lambda: socket.create_connection(("127.0.0.1", port), 1),
        "inside": lambda: socket.create_connection(own.getsockname(), 1),
        "around": lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM),
    }
    return [name for name, operation in operations.items() if _works(operation)]


def _start_neighbor(means: bytes) -> int:
    """Start a process that is confined in the same way, but apart; it ends when this one does."""
    until, _ = os.pipe()
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        return spawn((b"/", [b"sh", b"-c", b"read _"], dict(os.environb), [means]), until, nowhere)[0]
    except SpawnError:
        return 0  # then this process cannot be confined either


def _limit(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE))


def _witnessed(tree: bytes, texts: list[bytes]) -> str:
    """Let a shell try, and return the report of its witness; empty if it has none."""
    request = (tree, [b"sh", b"-c", b"echo > made; echo > kept; echo > own/mine"], dict(os.environb), texts)
    try:
        pid, observers, _ = spawn(request, 0, 2)
    except SpawnError:
        return ""
    if observers.witness is None:
        return ""
    os.waitpid(pid, 0)
    return observers.witness.report()


def _write(path: bytes) -> None:
    with open(path, "wb") as file:
        file.write(b"trial")


def _works(operation: Callable[[], object]) -> bool:
    try:
        operation()
    except OSError:
        return False
    return True

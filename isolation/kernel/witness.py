"""The witness: a thread that sees which changes a session attempts in a tree that is closed to it.

Standard library only: a keeper inspects each call that its session is about to make, as the kernel's seccomp
filter reports it, and lets it continue. The witness enforces nothing; mounts and Landlock do that. So it does
no harm that what a call names can change between the inspection and the call itself.

Names are resolved from the folder of the session's own process, but in the keeper's view: a session has the
same paths. A process that has another root, or has mounted the tree elsewhere in a sandbox of its own, is not
understood, and calls through io_uring are not seen.

Invariants:

- What is recorded is bounded: the first names, and the number of the others.
"""

# Without pathlib and contextlib: paths are bytes here, and each inspection must be fast.
# ruff: noqa: PTH112, PTH115, PTH116, PTH118, PTH120

import errno
import os
from collections.abc import Sequence

from isolation.kernel.noticed.listener import Listener
from isolation.kernel.syscall_effects import PROBE, effects
from isolation.kernel.syscall_filter import (
    CREAT,
    FOLDER_OF_PROCESS,
    LINK,
    MAKE,
    NEVER_FOLLOWS,
    NO_ARGUMENT,
    NO_NAME,
    OPEN,
    OPEN_HOW,
    OWNER,
    REMOVE,
    RENAME,
    calls,
)

TRIED = "tried"
"""Begins what it saw in a keeper's last line."""
MOST_NAMES = 1000
MOST_PROBES = 100
MOST_BYTES = 1 << 18
MOST_FOLDERS = 4096

_CURRENT_FOLDER = -100
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000
_LOCATE = os.O_PATH | os.O_CLOEXEC
_NOT_FOLLOWING = {MAKE, REMOVE, RENAME, LINK}
_NEW = os.O_CREAT | os.O_EXCL


class Witness(Listener):
    """Observes one session's calls; `closed` and `opened` are the paths of its confinement.

    Only what is closed because it lies in `top` counts; deeper paths of the confinement have their own rule.
    """

    word = TRIED

    def __init__(self, listener: int, top: bytes, closed: Sequence[bytes], opened: Sequence[bytes]) -> None:
        super().__init__(listener)
        self._top = top.rstrip(b"/")
        self._within = self._top + b"/"
        self._decided = {*closed, *opened} - {top}
        self._calls = calls()
        self._folders = _Folders()
        self._changes: dict[tuple[str, bytes], None] = {}
        self._probes: dict[tuple[str, bytes], None] = {}
        self._bytes = 0
        self._unnamed = 0

    def report(self) -> str:
        """Return the number of unnamed attempts, then the named ones, as words without spaces."""
        named = (f"{effect}:{path.hex()}" for effect, path in (*self._changes, *self._probes))
        return " ".join((str(self._unnamed), *named))

    def remember(self, tried: Sequence[tuple[str, bytes]]) -> None:
        """Keep the first attempts by name, and count the others."""
        for each in tried:
            kind, most = (self._probes, MOST_PROBES) if each[0] == PROBE else (self._changes, MOST_NAMES)
            if each in kind:
                continue
            if len(kind) < most and self._bytes < MOST_BYTES:
                kind[each] = None
                self._bytes += len(each[1])
            elif kind is self._changes:
                self._unnamed += 1

    def inspect(self, tid: int, call: int, arguments: Sequence[int]) -> list[tuple[str, bytes]]:
        """Return what a call would change in the closed tree."""
        what, where, value, at = self._calls[call]
        what, value = self._value(tid, what, value, arguments)
        flags = arguments[at] if at >= 0 else 0
        follows = what not in _NOT_FOLLOWING and at != NEVER_FOLLOWS and not flags & _NO_FOLLOW
        if what == OPEN and (value & os.O_NOFOLLOW or value & _NEW == _NEW):
            follows = False
        caller = _Caller(tid, arguments, nameless=bool(flags & _EMPTY_PATH))
        found = [self._find(caller, place, follows=follows) for place in where]
        closed = [self._is_closed(path) for path in found]
        if not any(closed):
            return []
        done = effects(what, value, [_entry(path) for path in found])
        return [
            (effect, path[len(self._within) :] or b".")
            for path, is_closed, effect in zip(found, closed, done, strict=True)
            if is_closed and effect and path
        ]

    def _value(self, tid: int, what: int, value: int, arguments: Sequence[int]) -> tuple[int, int]:
        """Return what a call does, with one code for all ways to open, and its flags, mode or owners."""
        if what == CREAT:
            return OPEN, os.O_CREAT | os.O_WRONLY | os.O_TRUNC
        if what == OPEN_HOW:
            return OPEN, int.from_bytes(self._memory.read(tid, arguments[value], 8), "little")
        if what == OWNER:
            return what, arguments[value] & 0xFFFFFFFF | (arguments[value + 1] & 0xFFFFFFFF) << 32
        return what, 0 if value == NO_ARGUMENT else arguments[value]

    def _is_closed(self, path: bytes | None) -> bool:
        """Return whether the rule of the tree itself applies to a path, and none of a deeper path."""
        while path and path.startswith(self._within):
            if path in self._decided:
                return False
            path = path.rpartition(b"/")[0]
        return path == self._top

    def _find(self, caller: "_Caller", place: tuple[int, int], *, follows: bool) -> bytes | None:
        """Return the real path that a call means; None if not even its folder exists."""
        folder, name = place
        address = 0 if name == NO_NAME else caller.arguments[name]
        try:
            path = self._memory.text(caller.tid, address) if address else b""
            if path[:1] == b"/":
                return self._folders.real(b"", path, follows=follows)
            if not path and address and not caller.nameless:
                return None
            base = caller.base(folder)
            return self._folders.real(base, path, follows=follows) if path else base
        except OSError:
            return None


class _Caller:
    """The process that makes a call, and the folders that its names are relative to, cached.

    `nameless` means that an empty name stands for the descriptor itself.
    """

    def __init__(self, tid: int, arguments: Sequence[int], *, nameless: bool) -> None:
        self.tid = tid
        self.arguments = arguments
        self.nameless = nameless
        self._bases: dict[int, bytes] = {}

    def base(self, folder: int) -> bytes:
        """Return the folder that an argument refers to, or the process's current one."""
        at = _CURRENT_FOLDER if folder == FOLDER_OF_PROCESS else _signed(self.arguments[folder])
        if at not in self._bases:
            link = b"/proc/%d/cwd" if at == _CURRENT_FOLDER else b"/proc/%d/fd/%d"
            self._bases[at] = os.readlink(link % ((self.tid,) if at == _CURRENT_FOLDER else (self.tid, at)))
        return self._bases[at]


class _Folders:
    """Resolves names to real paths, following links; the last component need not exist.

    Resolved folders are cached, and used again as long as the path still leads to the same inode.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int, bytes]] = {}

    def real(self, base: bytes, path: bytes, *, follows: bool) -> bytes:
        """Resolve a name; `follows` means that a link at its end is followed."""
        folder, _, name = path.rstrip(b"/").rpartition(b"/")
        if name in {b"", b".", b".."}:
            return self._folder(base, path)
        found = self._folder(base, folder) + b"/" + name
        if follows:
            try:
                link = os.readlink(found)
            except OSError:
                return found  # it is not a link
            return _led_to(os.path.join(os.path.dirname(found), link))
        return found

    def _folder(self, base: bytes, path: bytes) -> bytes:
        """Return the real path of a folder, without a slash at its end."""
        way = base + b"/" + path
        try:
            seen = os.stat(way)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return _path_of(base, path)
        known = self._known.get(way)
        if known is not None and known[0] == seen.st_ino and known[1] == seen.st_dev:
            return known[2]
        real = _path_of(base, path)
        if len(self._known) >= MOST_FOLDERS:
            self._known.clear()
        self._known[way] = seen.st_ino, seen.st_dev, real
        return real


def _led_to(path: bytes) -> bytes:
    """Follow a link to a target that need not exist yet, where a file would be created."""
    real = os.path.realpath(path)
    if not os.path.isdir(os.path.dirname(real)):
        raise FileNotFoundError(errno.ENOENT, "the link leads nowhere")
    return real


def _path_of(base: bytes, path: bytes) -> bytes:
    """Ask the kernel for the real path of a folder, in two steps: each part may have the maximum length."""
    start = os.open(base or b"/", _LOCATE)
    try:
        descriptor = os.open(path.lstrip(b"/") or b".", _LOCATE | os.O_DIRECTORY, dir_fd=start)
    finally:
        os.close(start)
    try:
        return os.readlink(b"/proc/self/fd/%d" % descriptor).rstrip(b"/")
    finally:
        os.close(descriptor)


def _entry(path: bytes | None) -> os.stat_result | None:
    try:
        return os.lstat(path) if path else None
    except OSError:
        return None


def _signed(argument: int) -> int:
    """Read an argument as the kernel reads a descriptor: 32 bits with a sign."""
    number = argument & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number

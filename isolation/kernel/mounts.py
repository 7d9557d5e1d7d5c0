"""A private mount namespace for one session: closed paths are read-only, an overlay takes what is written.

What is hidden has something empty in its place, which is read-only too.

Standard library only: a keeper's child calls this between fork and exec. The namespace is the session's own,
so no other process sees these mounts, and they vanish with its last process. Without privileges a user
namespace is needed too, in which only the user's own id is mapped.

Invariants:

- All folders are cloned before the first is mounted, so that an open folder inside a closed one is the real
  one, wherever it is to stand; then shallow paths are mounted first, so that the deeper path decides.
- The session cannot remove a mount: once its capabilities are dropped it has no privilege over this
  namespace, and in a nested one the kernel locks what it inherited.
"""

# Without pathlib: paths are bytes here, and the fork server must start fast.
# ruff: noqa: PTH123

import ctypes
import errno
import os
import struct
from collections.abc import Mapping, Sequence

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
NEW_MOUNTS, _NEW_USERS, _NEW_NETWORK = 0x20000, 0x10000000, 0x40000000
_CURRENT_FOLDER = -100
_CLONE, _NO_FOLLOW, _EMPTY_PATH, _RECURSIVE = 1, 0x100, 0x1000, 0x8000
_FROM_EMPTY_PATH = 4
_NOTHING = -1
_READ_ONLY = struct.pack("=QQQQ", 1, 0, 0, 0)
_SLAVE, _ALL_BELOW = 1 << 19, 1 << 14
_DROP_FROM_BOUNDS = 24
_CAPABILITY_VERSION = 0x20080522
_ESCAPES = (2, 16, 17, 19, 21, 27, 38, 39, 40, 12, 20, 22, 25, 26, 30, 32, 33, 34, 37)
"""Capabilities by which root could reach below a mount: files by handle, modules, raw memory and devices,
other processes' namespaces (ptrace), mounting itself, device files; those by which the memory of other
processes can be read and followed without ptrace: performance monitoring, BPF, checkpoints; and those that
change the whole machine: its network, accounting, start, clock, terminals, audit, security modules, log."""

NETWORK_ADMIN = 12
"""The capability by which root could connect a network of its own with the machine's."""

LIBC = ctypes.CDLL(None, use_errno=True)
"""For this room alone."""

_held = ctypes.create_string_buffer(24)
"""For an answer of the kernel; to make its type takes longer than the call that is answered."""


class MountError(OSError):
    """The namespace could not be set up; `filename` is the step that failed."""


def checked(result: int, step: str) -> int:
    """Return the result of a system call; raise if it failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise MountError(code, os.strerror(code), step)
    return result


def isolate_mounts(
    closed: Sequence[bytes],
    open_within: Sequence[bytes],
    overlay: tuple[bytes, bytes, bytes] | None,
    sources: Mapping[bytes, bytes],
    seal: tuple[Mapping[bytes, bytes], Sequence[bytes]] = ({}, ()),
    *,
    network: bool = False,
) -> None:
    """Move this process to its own mounts; `overlay` is target, upper and work folder.

    `sources` says what is mounted at a path instead of the path's own content. `seal` is what is hidden,
    each with what stands in for it, and the paths inside that are not. With `network` it also leaves the
    machine's network for a new one, which is connected to nothing.
    """
    privileged = enter_namespaces(NEW_MOUNTS | (_NEW_NETWORK if network else 0))
    copies = []
    for paths, read_only in ((closed, True), (open_within, False)):
        copies += [(path, _copy(sources.get(path, path), read_only=read_only)) for path in paths]
    hidden, shown = seal
    # Without its stand-in a place would not be hidden, so that is an error.
    copies += [(path, _copy(source, read_only=True, needed=True)) for path, source in hidden.items()]
    copies += [(path, _copy(path, read_only=False)) for path in shown]
    if overlay is not None:
        _mount_overlay(*overlay, privileged=privileged)
    for path, copy in sorted(copies, key=lambda pair: pair[0].count(b"/")):
        if copy == _NOTHING:
            continue
        moved = LIBC.syscall(_MOVE_MOUNT, copy, b"", _CURRENT_FOLDER, path, _FROM_EMPTY_PATH)
        if moved < 0:
            failure = ctypes.get_errno()
            # What was just deleted needs no stand-in; its deeper paths are gone with it.
            if (path not in hidden and path not in shown) or _exists(path):
                raise MountError(failure, os.strerror(failure), "move a mount")
        os.close(copy)


def enter_namespaces(kinds: int) -> bool:
    """Leave the machine's mounts and what else is asked for; true if no user namespace was needed."""
    user, group = os.geteuid(), os.getegid()
    if user == 0 and LIBC.unshare(kinds) == 0:
        checked(
            LIBC.mount(None, b"/", None, ctypes.c_ulong(_SLAVE | _ALL_BELOW), None),
            "make the mounts private",
        )
        return True
    if LIBC.unshare(_NEW_USERS | kinds) < 0:
        code = ctypes.get_errno()
        # The kernel's own message would be "No space left on device".
        words = "the limit of namespaces is reached" if code == errno.ENOSPC else os.strerror(code)
        raise MountError(code, words, "make a user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("gid_map", f"{group} {group} 1"),
        ("uid_map", f"{user} {user} 1"),
    ):
        try:
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
        except OSError as error:
            raise MountError(error.errno, error.strerror, "map the user in its namespace") from error
    return False


def _exists(path: bytes) -> bool:
    try:
        os.lstat(path)
    except OSError:
        return False
    return True


def _copy(path: bytes, *, read_only: bool, needed: bool = False) -> int:
    """Clone the mount of a folder, with everything below, to be mounted later.

    Returns `_NOTHING` if there is nothing at the path, unless it is needed.
    """
    flags = _CLONE | _NO_FOLLOW | _RECURSIVE | os.O_CLOEXEC
    copy: int = LIBC.syscall(_OPEN_TREE, _CURRENT_FOLDER, path, flags)
    if copy < 0:
        failure = ctypes.get_errno()
        if not needed and not _exists(path):
            return _NOTHING
        raise MountError(failure, os.strerror(failure), "clone a mount")
    if read_only:
        how = (copy, b"", _EMPTY_PATH | _RECURSIVE, _READ_ONLY, ctypes.c_size_t(len(_READ_ONLY)))
        checked(LIBC.syscall(_MOUNT_SETATTR, *how), "make a mount read-only")
    return copy


def _mount_overlay(target: bytes, upper: bytes, work: bytes, *, privileged: bool) -> None:
    """Mount an overlay; descriptors name its folders, so that no character needs escaping."""
    folders = [os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in (target, upper, work)]
    options = "lowerdir=/proc/self/fd/{},upperdir=/proc/self/fd/{},workdir=/proc/self/fd/{}".format(*folders)
    # Every changed file is whole in the upper folder, and no folder is a mere reference to another.
    options += ",redirect_dir=off,metacopy=off,index=off" if privileged else ",userxattr"
    checked(
        LIBC.mount(b"overlay", target, b"overlay", ctypes.c_ulong(0), options.encode()), "mount an overlay"
    )
    for folder in folders:
        os.close(folder)


def drop_capabilities(more: Sequence[int] = ()) -> None:
    """Drop the capabilities that would undo a confinement; an ordinary user has none of them."""
    dropped = (*_ESCAPES, *more)
    for number in dropped:
        LIBC.prctl(_DROP_FROM_BOUNDS, number, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    checked(LIBC.capget(header, _held), "read the capabilities")
    words = list(struct.unpack("=6I", _held.raw))
    lost = sum(1 << number for number in dropped)
    # Three words with the lower capabilities, then three with the others.
    words = [
        word & ~((lost >> 32 if high else lost) & 0xFFFFFFFF)
        for high, word in zip((0, 0, 0, 1, 1, 1), words, strict=True)
    ]
    checked(LIBC.capset(header, struct.pack("=6I", *words)), "drop capabilities")

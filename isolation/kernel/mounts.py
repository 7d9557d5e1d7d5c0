"""A view of the file system for one session: closed paths are read-only, a layer takes what is written.

Standard library only: a keeper's child calls this between fork and exec. It gets a mount namespace of
its own, so nobody else sees these mounts, and they are gone with its last process. Without privileges
a user namespace comes with it, in which the user is the only one who has a name.

Invariants:

- Copies of all folders are taken before the first is put in place, so that an open folder within a
  closed one is the real one; then the shallow come first, so that the deeper path decides.
- What is left to the session cannot take a mount away: it has no privilege over this namespace, and
  in a further one the kernel locks what came from here.
"""

# Without pathlib: paths are bytes here, and the fork server must start fast.
# ruff: noqa: PTH123

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000
_CURRENT_FOLDER = -100
_CLONE, _NO_FOLLOW, _EMPTY_PATH, _RECURSIVE = 1, 0x100, 0x1000, 0x8000
_FROM_EMPTY_PATH = 4
_READ_ONLY = struct.pack("=QQQQ", 1, 0, 0, 0)
_SLAVE, _ALL_BELOW = 1 << 19, 1 << 14
_DROP_FROM_BOUNDS = 24
_CAPABILITY_VERSION = 0x20080522
_WAYS_AROUND = (2, 16, 17, 19, 21, 27)
"""By these root would reach below a mount: files by handle, modules, raw memory and devices, other
processes' views (ptrace), mounting itself, device files."""

_libc = ctypes.CDLL(None, use_errno=True)


class SecludeError(OSError):
    """The view could not be made; `filename` is the step that failed."""


def _checked(result: int, step: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise SecludeError(code, os.strerror(code), step)
    return result


def seclude(
    closed: Sequence[bytes], open_within: Sequence[bytes], layer: tuple[bytes, bytes, bytes] | None
) -> None:
    """Give this process the view; `layer` is target, upper and work folder."""
    privileged = _enter_namespaces()
    copies = [(path, _copy(path, read_only=True)) for path in closed if _is_there(path)]
    copies += [(path, _copy(path, read_only=False)) for path in open_within if _is_there(path)]
    if layer is not None:
        _lay_over(*layer, privileged=privileged)
    for path, copy in sorted(copies, key=lambda pair: pair[0].count(b"/")):
        _checked(
            _libc.syscall(_MOVE_MOUNT, copy, b"", _CURRENT_FOLDER, path, _FROM_EMPTY_PATH),
            "put a mount in place",
        )
        os.close(copy)
    _drop_ways_around()


def _enter_namespaces() -> bool:
    """Leave the machine's mounts; true when that took no user namespace."""
    user, group = os.geteuid(), os.getegid()
    if user == 0 and _libc.unshare(_NEW_MOUNTS) == 0:
        _checked(_libc.mount(None, b"/", None, ctypes.c_ulong(_SLAVE | _ALL_BELOW), None), "part the mounts")
        return True
    if _libc.unshare(_NEW_USERS | _NEW_MOUNTS) < 0:
        code = ctypes.get_errno()
        # The kernel's words for it speak of a device without space.
        words = "the limit of namespaces is reached" if code == errno.ENOSPC else os.strerror(code)
        raise SecludeError(code, words, "make a user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("gid_map", f"{group} {group} 1"),
        ("uid_map", f"{user} {user} 1"),
    ):
        try:
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
        except OSError as error:
            raise SecludeError(error.errno, error.strerror, "name the user in its namespace") from error
    return False


def _is_there(path: bytes) -> bool:
    try:
        os.lstat(path)
    except OSError:
        return False
    return True


def _copy(path: bytes, *, read_only: bool) -> int:
    """Copy the mount of a folder, with all below, to be put in place later."""
    flags = _CLONE | _NO_FOLLOW | _RECURSIVE | os.O_CLOEXEC
    copy = _checked(_libc.syscall(_OPEN_TREE, _CURRENT_FOLDER, path, flags), "copy a mount")
    if read_only:
        how = (copy, b"", _EMPTY_PATH | _RECURSIVE, _READ_ONLY, ctypes.c_size_t(len(_READ_ONLY)))
        _checked(_libc.syscall(_MOUNT_SETATTR, *how), "make a mount read-only")
    return copy


def _lay_over(target: bytes, upper: bytes, work: bytes, *, privileged: bool) -> None:
    """Mount an overlay; its folders are named by descriptors, as no character needs an escape there."""
    folders = [os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in (target, upper, work)]
    options = "lowerdir=/proc/self/fd/{},upperdir=/proc/self/fd/{},workdir=/proc/self/fd/{}".format(*folders)
    # Files stay whole in the upper folder, and a folder is never a mere reference to another.
    options += ",redirect_dir=off,metacopy=off,index=off" if privileged else ",userxattr"
    _checked(_libc.mount(b"overlay", target, b"overlay", ctypes.c_ulong(0), options.encode()), "lay over")
    for folder in folders:
        os.close(folder)


def _drop_ways_around() -> None:
    """Give up what would undo all this; a user without privileges has nothing to give up."""
    for number in _WAYS_AROUND:
        _libc.prctl(_DROP_FROM_BOUNDS, number, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    held = ctypes.create_string_buffer(24)
    _checked(_libc.capget(header, held), "look at the capabilities")
    words = list(struct.unpack("=6I", held.raw))
    lost = sum(1 << number for number in _WAYS_AROUND)
    words[:3] = [word & ~lost for word in words[:3]]
    _checked(_libc.capset(header, struct.pack("=6I", *words)), "drop capabilities")

"""Overlays at the paths of worktrees, in mounts that all processes of a run share.

A session has mounts of its own (`mounts.py`); these are made once for the coordinator, before it starts
anything, so that all that it starts sees the same files at the same paths. They vanish with the last process
that has them. Another process of the same user can join them.

Invariants:

- Two overlays never share an upper folder: the kernel refuses the second, in whatever mounts it is. It does
  so only if `index=on` is asked for, though as a user it then does without the index itself.
- As root a folder of the layer below can be renamed (`redirect_dir=on`). Others get `EXDEV`, since only root
  may store what that needs; programs such as `mv` then copy.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from isolation.kernel.mounts import LIBC, NEW_MOUNTS, checked, enter_namespaces

_NEW_USERS = 0x10000000
_DETACH = 2
_OPTIONS = {True: "redirect_dir=on,metacopy=off,index=on", False: "userxattr,index=on"}
_ALL_USERS = ["0", "0", "4294967295"]


def own_mounts() -> str:
    """Return a name for the mounts that this process has."""
    return mounts_of(os.getpid())


def mounts_of(pid: int) -> str:
    """Return a name for the mounts of a process; empty if it is gone or another user's."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115  a link of procfs, not a path
    except OSError:
        return ""


def part_from_machine() -> None:
    """Leave the machine's mounts for new ones, as a user also its users. The process must have one thread."""
    enter_namespaces(NEW_MOUNTS)


def join(pid: int) -> None:
    """Share the mounts of a process of the same user. This process must have one thread."""
    here = os.getcwd()  # noqa: PTH109  joining leads to the root folder
    kinds = {"user": _NEW_USERS, "mnt": NEW_MOUNTS}
    opened: list[tuple[int, int]] = []
    try:
        for kind, number in kinds.items():
            theirs = f"/proc/{pid}/ns/{kind}"
            if os.readlink(theirs) != os.readlink(f"/proc/self/ns/{kind}"):  # noqa: PTH115  links of procfs
                opened.append((os.open(theirs, os.O_RDONLY | os.O_CLOEXEC), number))
        for descriptor, number in opened:
            checked(LIBC.setns(descriptor, number), "join the mounts of another process")
    finally:
        for descriptor, _ in opened:
            os.close(descriptor)
    with suppress(OSError):  # made since, in other mounts
        os.chdir(here)


def is_trusted() -> bool:
    """Whether this process is root on the machine itself, not in a namespace of users."""
    try:
        return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split() == _ALL_USERS
    except OSError:
        return False


def cover(target: Path, bottom: Path, upper: Path, work: Path, *, trusted: bool) -> None:
    """Mount an overlay at a path: `bottom` is read, `upper` has what is written. Raises MountError.

    An upper folder must always be mounted with the same `trusted`. EBUSY says that it is mounted already.
    """
    folders = [os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in (bottom, upper, work)]
    try:
        # Descriptors name the folders, so that no character needs escaping.
        named = "lowerdir=/proc/self/fd/{},upperdir=/proc/self/fd/{},workdir=/proc/self/fd/{}"
        options = f"{named.format(*folders)},{_OPTIONS[trusted]}".encode()
        mounted = LIBC.mount(b"overlay", bytes(target), b"overlay", ctypes.c_ulong(0), options)
        checked(mounted, "mount an overlay")
    finally:
        for folder in folders:
            os.close(folder)


def is_covered(target: Path) -> bool:
    """Whether something is mounted at a path, as this process sees it."""
    try:
        return target.stat().st_dev != target.parent.stat().st_dev
    except OSError:
        return False


def uncover(target: Path) -> None:
    """Remove the mount at a path; what still uses it keeps it for itself. Raises MountError."""
    if LIBC.umount2(bytes(target), 0) == 0:
        return
    checked(LIBC.umount2(bytes(target), _DETACH), "remove an overlay")

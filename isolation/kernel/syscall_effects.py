"""What a system call would change at the paths that it names. Pure, and standard library only.

A call that could only fail changes nothing: removing what does not exist, making a folder that exists. So it
does not count as an attempt.
"""

import os
import stat
from collections.abc import Sequence

from isolation.kernel.syscall_filter import LINK, MAKE, MODE, OPEN, OWNER, REMOVE, RENAME, TRUNCATE

WRITE, CREATE, DELETE, ATTRIBUTES = "write", "create", "delete", "attributes"
PROBE = "open"
"""Changes nothing by itself: a file was opened for reading *and* writing, as programs do that then only read,
or was to get a hard link, which programs replace by a copy when it is refused."""

Entry = os.stat_result | None
"""What exists at a path; None if nothing does."""

_UNCHANGED = 0xFFFFFFFF
_WITHOUT_NAME = os.O_TMPFILE & ~os.O_DIRECTORY


def effects(what: int, value: int, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the effect at each path of a call, empty for none; `value` is its flags, mode or owners."""
    first, last = entries[0], entries[-1]
    if what in {RENAME, LINK}:
        if first is None:
            return "", ""
        over = WRITE if what == RENAME else ""
        return DELETE if what == RENAME else PROBE, CREATE if last is None else over
    if what == OPEN:
        return (_opening(value, first),)
    if first is None:
        return (CREATE if what == MAKE else "",)
    return (_changing(what, value, first),)


def _changing(what: int, value: int, entry: os.stat_result) -> str:
    """Return what a call would change about an existing entry."""
    if what == REMOVE:
        return DELETE
    if what == TRUNCATE:
        return WRITE if stat.S_ISREG(entry.st_mode) else ""
    same = {
        MAKE: True,
        MODE: stat.S_IMODE(entry.st_mode) == value & 0o7777,
        OWNER: not _gives_away(value, entry),
    }
    return "" if same.get(what) else ATTRIBUTES


def _opening(flags: int, entry: Entry) -> str:
    if entry is None:
        return CREATE if flags & os.O_CREAT else ""
    if stat.S_ISDIR(entry.st_mode):
        return PROBE if flags & _WITHOUT_NAME else ""
    if not stat.S_ISREG(entry.st_mode):
        return ""  # a pipe or a device is written to, not the tree
    if flags & os.O_CREAT and flags & os.O_EXCL:
        return ""
    access = flags & os.O_ACCMODE
    if flags & os.O_TRUNC or access == os.O_WRONLY or (access and flags & os.O_APPEND):
        return WRITE
    return PROBE if access == os.O_RDWR else ""


def _gives_away(value: int, entry: os.stat_result) -> bool:
    user, group = value & _UNCHANGED, value >> 32
    return user not in {_UNCHANGED, entry.st_uid} or group not in {_UNCHANGED, entry.st_gid}

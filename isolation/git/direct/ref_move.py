"""A branch moved from one commit to another as git's `update-ref` does it, without a process.

Git's own protocol: what has made the lock file of a ref may replace it. Whatever is unusual is left to git.
Invariants:

- The branch moves only from the commit that is named, and only to one that the repository has as a file.
- The new id is on the disk before it appears, and after its line in the log, as with git.
- The lock is open until it has become the ref: one that a process has open is never taken for a left one.
"""

import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.direct.linked import is_simple
from isolation.git.direct.refs import has_commit
from isolation.paths import own_git_dir
from isolation.patterns import pattern

_HOOK = "reference-transaction"
_TAIL = 1 << 12
_ENTRY = pattern(rb"[0-9a-f]+ [0-9a-f]+ (?P<who>[^\t]*<[^\t>]*>) \d+ [+-]\d{4}(?:\t.*)?")


def move_ref(common: Path, top: Path, ref: str, *, commit: str, before: str, why: str) -> bool:
    """Move a branch that has a file and a log; False, with nothing moved, if that is left to git. Blocks.

    `top` is the checkout in which git would work. The user has no folder of hooks elsewhere.
    """
    if not is_simple(common) or os.path.lexists(common / "hooks" / _HOOK):
        return False
    if _is_checked_out(common, top, ref) or not has_commit(common, commit):
        return False
    place, moved = f"{common / ref}", False
    with suppress(OSError), ExitStack() as held:
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        log = os.open(common / "logs" / ref, flags)
        held.callback(os.close, log)
        who = _last_author(log)
        if not who:
            return False
        lock = os.open(f"{place}.lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        held.callback(os.close, lock)
        try:
            if read_plain(Path(place), LONGEST_POINTER, follow=False) == f"{before}\n".encode():
                os.write(lock, f"{commit}\n".encode())
                os.fsync(lock)
                when = f"{int(time.time())} {time.strftime('%z')}\t{why}"
                os.write(log, b"%b %b %b\n" % (f"{before} {commit}".encode(), who, when.encode()))
                os.rename(f"{place}.lock", place)  # noqa: PTH104  one call among others of its kind
                moved = True
        finally:
            if not moved:
                os.unlink(f"{place}.lock")  # noqa: PTH108  as above
    return moved


def _is_checked_out(common: Path, top: Path, ref: str) -> bool:
    """Whether git would write to the log of HEAD, too."""
    try:
        head = read_plain((own_git_dir(top) or common) / "HEAD", LONGEST_POINTER)
    except OSError:
        return True
    return head.strip() == os.fsencode(f"ref: {ref}")


def _last_author(log: int) -> bytes:
    """Return who made the last entry of a log: what git knows of the user; empty if it is unclear."""
    size = os.fstat(log).st_size
    last = os.pread(log, _TAIL, max(0, size - _TAIL))
    if not last.endswith(b"\n"):
        return b""
    entry = _ENTRY.fullmatch(last[:-1].rpartition(b"\n")[2])
    return entry["who"] if entry else b""

"""A branch made, or moved from one commit to another, as git's `update-ref` does it, without a process.

Git's own protocol: what has made the lock file of a ref may replace it. Whatever is unusual is left to git.
Invariants:

- The branch moves only from the commit that is named, and only to one that the repository has as a file. A
  branch is made only where there is none, and none that its name would stand in the way of.
- The new id is on the disk before it appears, and after its line in the log, as with git.
- The lock is open until it has become the ref: one that a process has open is never taken for a left one.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from isolation.files.lookups import is_folder
from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.direct.linked import is_simple
from isolation.git.direct.refs import NO_REF, has_commit, has_refs_below, read_ref
from isolation.paths import own_git_dir
from isolation.patterns import pattern

_HOOK = "reference-transaction"
_TAIL = 1 << 12
_BRANCHES = "refs/heads/"
_USUAL = pattern(rb"(?:bare\s*=\s*false|logallrefupdates\s*=\s*(?:true|always))")
_LOGGED_BY = (b"bare", b"logallrefupdates")
_PLAIN_NAME = pattern(r"[A-Za-z0-9_][A-Za-z0-9_-]*(?:[./][A-Za-z0-9_-]+)*")
"""Names that git takes wherever it runs, if no part ends like a lock; it takes some others, too."""
_ENTRY = pattern(rb"[0-9a-f]+ [0-9a-f]+ (?P<who>[^\t]*<[^\t>]*>) \d+ [+-]\d{4}(?:\t.*)?")


def move_ref(common: Path, top: Path, ref: str, *, commit: str, before: str, why: str) -> bool:
    """Move a branch that has a file and a log; False, with nothing moved, if that is left to git. Blocks.

    `top` is the checkout in which git would work. The user has no folder of hooks elsewhere.
    """
    if not is_simple(common) or os.path.lexists(f"{common}/hooks/{_HOOK}"):
        return False
    if _is_checked_out(common, top, ref) or not has_commit(common, commit):
        return False
    place = f"{common}/{ref}"
    with suppress(OSError), ExitStack() as held:
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        log = os.open(f"{common}/logs/{ref}", flags)
        held.callback(os.close, log)
        who = _last_author(log)
        with _new_value(place, commit):
            if not who or read_plain(place, LONGEST_POINTER, follow=False) != f"{before}\n".encode():
                raise _LeftToGitError
            when = f"{_now()}\t{why}"
            os.write(log, b"%b %b %b\n" % (f"{before} {commit}".encode(), who, when.encode()))
        return True
    return False


def make_branch(common: Path, branch: str, commit: str, who: str) -> bool:
    """Make a branch that is new in every way; False, with nothing made, if that is left to git. Blocks.

    `who` is what git logs of the user. The repository has the commit, and the user no folder of hooks
    elsewhere.
    """
    ref = f"{_BRANCHES}{branch}"
    place, log = f"{common}/{ref}", f"{common}/logs/{ref}"
    usual = _PLAIN_NAME.fullmatch(branch) and ".lock" not in branch and branch != "HEAD"
    if not usual or not who or not is_simple(common, also=_keeps_logs):
        return False
    if os.path.lexists(f"{common}/hooks/{_HOOK}"):
        return False
    with suppress(OSError):
        for folder in map(os.path.dirname, (place, log)):
            if not is_folder(folder):
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103  text
        with _new_value(place, commit):
            if not _is_free(common, branch):
                raise _LeftToGitError
            line = f"{'0' * len(commit)} {commit} {who} {_now()}\tbranch: Created from {commit}\n"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(log, flags, 0o666), "wb") as file:
                file.write(line.encode(errors="surrogateescape"))
        return True
    return False


class _LeftToGitError(OSError):
    """Something is unusual."""


@contextmanager
def _new_value(place: str, commit: str) -> Iterator[None]:
    """Hold the lock of a ref; at the end of the block the commit becomes its value, unless by an error."""
    lock = os.open(f"{place}.lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.write(lock, f"{commit}\n".encode())
        os.fsync(lock)
        yield
        os.rename(f"{place}.lock", place)  # noqa: PTH104  one call among others of its kind
    except BaseException:
        os.unlink(f"{place}.lock")  # noqa: PTH108  as above
        raise
    finally:
        os.close(lock)


def _is_free(common: Path, branch: str) -> bool:
    """Whether there is neither this branch nor one above or below it; with its lock held, none appears."""
    parts = branch.split("/")
    above = ("/".join(parts[:end]) for end in range(1, len(parts)))
    return (
        all(read_ref(common, f"{_BRANCHES}{name}") == NO_REF for name in (*above, branch))
        and not has_refs_below(common, f"{_BRANCHES}{branch}")
        and not os.path.lexists(f"{common}/{_BRANCHES}{branch}")
    )


def _keeps_logs(config: bytes) -> bool:
    """Whether git certainly has a log for each branch: as it does by default, except in a bare repository."""
    lines = (line.strip() for line in config.splitlines())
    telling = (line for line in lines if line.startswith(_LOGGED_BY))
    return all(_USUAL.fullmatch(line) for line in telling)


def _is_checked_out(common: Path, top: Path, ref: str) -> bool:
    """Whether git would write to the log of HEAD, too."""
    try:
        head = read_plain(f"{own_git_dir(top) or common}/HEAD", LONGEST_POINTER)
    except OSError:
        return True
    return head.strip() == os.fsencode(f"ref: {ref}")


def _now() -> str:
    return f"{int(time.time())} {time.strftime('%z')}"


def _last_author(log: int) -> bytes:
    """Return who made the last entry of a log: what git knows of the user; empty if it is unclear."""
    size = os.fstat(log).st_size
    last = os.pread(log, _TAIL, max(0, size - _TAIL))
    if not last.endswith(b"\n"):
        return b""
    entry = _ENTRY.fullmatch(last[:-1].rpartition(b"\n")[2])
    return entry["who"] if entry else b""

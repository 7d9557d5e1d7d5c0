"""The branches of all stories as one list of packed refs, which is made for every session.

To look at the files of hundreds of branches takes longer than everything else that prepares a session, and
nearly all of them are as they were. So the list is kept for the life of the process, and what has moved is
read again.

Invariants:

- What this process has moved is read again before the next list. A note of it is made after the move, and
  names the branch alone: of two moves at the same time, what the last one left is read.
- What others have moved, by hand or in another run, is in a list that is made `LOOK_SECONDS` later. If the
  looks take long, that time grows, so that they are a twentieth part of all.
- What git has packed is read again whenever its file has changed.
"""

import os
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.patterns import pattern

NAMESPACE = Path("heads", "autopilot")
"""The refs that stories' commits move."""
PREFIX = f"refs/{NAMESPACE.as_posix()}/"
LOOK_SECONDS = 1.0

_PART_OF_TIME = 20
_COMMIT = pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PACKED = pattern(rb"^[0-9a-f]+ (%b[^\n]+)\n(?:\^[0-9a-f]+\n)?" % PREFIX.encode(), re.MULTILINE)
_LARGEST_LIST = 1 << 26
_SETTLED = 10**9
_MOVING = frozenset({"update-ref", "branch", "worktree", "fetch"})
"""The git commands by which this program makes, moves, renames and deletes branches."""
_NAMED = pattern(r"(?<![^\s\0:+/])autopilot/([^\s\0:]+)")

_State = tuple[int, ...]


class _Packed(Struct, frozen=True, kw_only=True):
    """What git has packed: the lines of stories' branches by their refs, and what comes before and after."""

    state: _State
    before: bytes
    stories: dict[bytes, bytes]
    after: bytes


class StoryBranches:
    """The list of one repository."""

    def __init__(self, common: Path) -> None:
        self._packs = common / "packed-refs"
        self._folder = common / "refs" / NAMESPACE
        self._lock = threading.Lock()
        self._moved: set[str] = set()
        self._look_at = -float("inf")
        self._packed = _Packed(state=(), before=b"", stories={}, after=b"")
        self._commits: dict[str, str] = {}
        """The branches that are files."""
        self._settled: dict[str, _State] = {}
        """What the file system said about a file when it was read, if that tells whether it has changed."""
        self._refs: list[bytes] = []
        self._lines: list[bytes] = []

    def note(self, name: str) -> None:
        """Note that this process has moved a branch, or all that a pattern stands for."""
        if "*" in name:
            self._look_at = -float("inf")
        elif "/" not in name:
            self._moved.add(name)

    def text(self) -> bytes:
        """Return git's list with the branches of all stories, also those that are files. Blocks."""
        with self._lock:
            self._read_packed()
            if time.monotonic() >= self._look_at:
                self._look()
            while self._moved:
                name = self._moved.pop()
                self._settled.pop(name, None)
                self._set(name, commit_in(f"{self._folder}/{name}"))
            return b"".join((self._packed.before, *self._lines, self._packed.after))

    def _read_packed(self) -> None:
        now, known = time.time_ns(), self._packed.state
        try:
            found = self._packs.stat()
            state = (found.st_dev, *_state(found))
        except OSError:
            state = ()
        if state and state == known and _is_settled(found, now):
            return
        if not state and not known:
            return
        self._packed = _parted(state, _packed_text(self._packs) if state else b"")
        lines = self._packed.stories | {_ref(name): _line(name, at) for name, at in self._commits.items()}
        self._refs = sorted(lines)
        self._lines = [lines[ref] for ref in self._refs]
        if state != known:
            self._look_at = -float("inf")  # git removes the files of what it has packed

    def _look(self) -> None:
        """Look at all files; most have not changed since the last look."""
        # Without the waits for other threads, which would put off the next look.
        begun, now = time.thread_time(), time.time_ns()
        self._moved.clear()  # before the looks, which find all of these moves
        gone = set(self._commits)
        for name, found in _files(self._folder):
            gone.discard(name)
            state = _state(found)
            if self._settled.get(name) != state:
                self._set(name, commit_in(f"{self._folder}/{name}"))
                # What changes at the same moment, by the file system's clock, might look the same.
                if _is_settled(found, now):
                    self._settled[name] = state
        for name in gone:
            self._settled.pop(name, None)
            self._set(name, "")
        took = time.thread_time() - begun
        self._look_at = time.monotonic() + max(LOOK_SECONDS, took * _PART_OF_TIME)

    def _set(self, name: str, commit: str) -> None:
        """Set the commit that the file of a branch holds; empty for none."""
        if self._commits.get(name, "") == commit:
            return
        ref = _ref(name)
        if commit:
            self._commits[name] = commit
            line = _line(name, commit)
        else:
            del self._commits[name]
            line = self._packed.stories.get(ref, b"")
        at = bisect_left(self._refs, ref)
        end = at + int(self._refs[at : at + 1] == [ref])
        self._refs[at:end] = [ref] if line else []
        self._lines[at:end] = [line] if line else []


@lru_cache(maxsize=64)
def branches_of(common: Path) -> StoryBranches:
    """Return the list of a repository, which all threads of this process share."""
    return StoryBranches(common)


# A lock that another thread holds stays locked in a forked process, which also hears of no more moves.
os.register_at_fork(after_in_child=branches_of.cache_clear)


def note_move(common: Path, ref: str) -> None:
    """Note that this process has moved a ref, or may have; the branch of a story is read again."""
    if ref.startswith(PREFIX):
        branches_of(common).note(ref.removeprefix(PREFIX))


def note_command(common: Path, args: tuple[str, ...], stdin: bytes | None) -> None:
    """Note the branches of stories that a git command of this process may have moved."""
    if _MOVING.isdisjoint(args):
        return
    for text in (*args, os.fsdecode(stdin or b"")):
        for name in _NAMED.findall(text):
            branches_of(common).note(name)


def commit_in(file: Path | str) -> str:
    """Return the commit that the file of a ref holds; empty if there is none."""
    text = text_in(file)
    return text if _COMMIT.fullmatch(text) else ""


def text_in(file: Path | str) -> str:
    """Return the one line of a file that a session may have written; empty if there is none."""
    try:
        data = read_plain(file, LONGEST_POINTER, follow=False)
    except OSError:
        return ""
    return data.decode("ascii", "replace").strip()


def packed_text(common: Path) -> bytes:
    """Return git's own list of refs."""
    return _packed_text(common / "packed-refs")


def _packed_text(file: Path) -> bytes:
    try:
        return read_plain(file, _LARGEST_LIST)
    except OSError:
        return b""


def _parted(state: _State, packed: bytes) -> _Packed:
    stories = {found[1]: found[0] for found in _PACKED.finditer(packed)}
    lines = (_PACKED.sub(b"", packed) if stories else packed).splitlines(keepends=True)
    # The list is sorted, and says so.
    after = (at for at, line in enumerate(lines) if line[:1] not in b"#^" and _ref_in(line) > PREFIX.encode())
    at = next(after, len(lines))
    return _Packed(state=state, before=b"".join(lines[:at]), stories=stories, after=b"".join(lines[at:]))


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(".lock"):
            continue
        try:
            yield entry.name, entry.stat(follow_symlinks=False)
        except OSError:
            continue


def _state(found: os.stat_result) -> _State:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _is_settled(found: os.stat_result, now: int) -> bool:
    return abs(now - found.st_ctime_ns) > _SETTLED


def _ref(name: str) -> bytes:
    return os.fsencode(PREFIX + name)


def _line(name: str, commit: str) -> bytes:
    return b"%b %b\n" % (commit.encode(), _ref(name))


def _ref_in(line: bytes) -> bytes:
    return line.rstrip(b"\n").partition(b" ")[2]

"""What a running session changes in its workspace: whether anything is written at all, and whether it is new.

The first question is asked when a session is silent, the second when it seems to be stuck. Both walk the
workspace, so they are asked only when everything cheaper has given no answer.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from isolation.files.plain import read_plain
from isolation.paths import EXCHANGE, own_git_dir
from runner.core.limits.stuck import FileWrite, ProgressWatch, Stuck, content_digest
from runner.core.work_settings import TOOL_CACHES

MOST_ENTRIES = 200_000
"""How many entries are checked in one walk, so that it stays cheap."""
MOST_BYTES = 4 << 20
MOST_FILES_READ = 1000
LONGEST_PAUSE = 60.0
"""Seconds between two walks for progress, at most; a shorter limit has shorter pauses."""

_LOOKS_A_LIMIT = 30
_CLOCK_SLACK = 0.02
"""The kernel dates files by a clock that is behind by up to one tick."""
_COMMITS = ("logs/HEAD", "COMMIT_EDITMSG")
_NOT_WORK = frozenset({".git", EXCHANGE, "node_modules", ".venv", ".venv-story", "venv", *TOOL_CACHES})
"""Folders that tools fill, and our own: large, and what is new there is not the work of a session."""


def changed_since(workspace: Path, since: float) -> bool:
    """Return whether something was written, added or removed after `since`, commits included. Blocking."""
    git_dir = own_git_dir(workspace)
    kept = [git_dir / name for name in ("index", "HEAD", *_COMMITS)] if git_dir else []
    if any(_newer(path, since) for path in kept):
        return True
    pending, left = [str(workspace)], MOST_ENTRIES
    while pending and left > 0:
        folder = pending.pop()
        if _newer(Path(folder), since):
            return True
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if entry.name == ".git":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.stat(follow_symlinks=False).st_mtime > since:
                        return True
        except OSError:
            continue  # it is being removed at this moment
    return False


def _newer(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime > since
    except OSError:
        return False


class ProgressLooks:
    """Checks now and then what one session has written; blocking, so called in a thread.

    `artifacts` returns those of the step. `limit` is for how many seconds an active session may leave
    nothing new; None if that alone never ends it. `clock` returns the time of day, which dates files.
    """

    def __init__(
        self,
        artifacts: Callable[[], tuple[Path, ...]],
        *,
        workspace: Path,
        limit: float | None,
        began_at: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._artifacts = artifacts
        self._workspace = workspace
        self._watch = ProgressWatch(new_at=began_at, limit=limit)
        self._stamps: dict[Path, tuple[int, int, int]] = {}
        self._pause = LONGEST_PAUSE if limit is None else min(LONGEST_PAUSE, limit / _LOOKS_A_LIMIT)
        self._walk_from = began_at

    def look(self, at: float, activity_at: float, places: tuple[Path, ...]) -> Stuck | None:
        """Note what was written since the last check, and judge; `places` is where its work appears."""
        artifacts = self._artifacts()
        for path in artifacts:
            self._look_at(path, at)
        self._watch = self._watch.tick(at, activity_at)
        if self._watch.verdict() is None or at < self._walk_from:
            return None
        # It seems to be stuck. What else it has written is only known by walking through its workspace.
        self._walk_from = at + self._pause
        behind = self._clock() - at
        since = self._watch.new_at + behind - _CLOCK_SLACK
        own = self._workspace / EXCHANGE
        worked_in = tuple(place for place in places if not place.is_relative_to(own))
        writes = _writes(worked_in, since, {str(path) for path in artifacts})
        if writes is None:
            self._watch = self._watch.seen_anything(at)
        else:
            self._watch = self._watch.seen_files(
                {path: FileWrite(digest=write.digest, at=write.at - behind) for path, write in writes.items()}
            )
        return self._watch.verdict()

    def _look_at(self, path: Path, at: float) -> None:
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if self._stamps.get(path) == stamp:
                return
            digest = _digest(path)
        except OSError:
            return  # it is being replaced at this moment
        self._stamps[path] = stamp
        self._watch = self._watch.seen_artifact(self._shown(path), digest, at)

    def _shown(self, path: Path) -> str:
        inside = path.is_relative_to(self._workspace)
        return path.relative_to(self._workspace).as_posix() if inside else str(path)


def _writes(places: tuple[Path, ...], since: float, skipped: set[str]) -> dict[str, FileWrite] | None:
    """Return the files that were written after `since`; None if there are too many to tell."""
    found: dict[str, FileWrite] = {}
    left = MOST_ENTRIES
    for path, changed_at in _entries(places, since, skipped):
        left -= 1
        if left < 0 or len(found) >= MOST_FILES_READ:
            return None
        if changed_at is None:
            continue
        try:
            found[path] = FileWrite(digest=_digest(Path(path)), at=changed_at)
        except OSError:
            continue  # it is gone again
    return found


def _entries(places: tuple[Path, ...], since: float, skipped: set[str]) -> Iterator[tuple[str, float | None]]:
    """Yield everything below `places`, with the time of its change if it is a file that changed."""
    pending = []
    for place in places:
        git_dir = own_git_dir(place)
        for name in _COMMITS if git_dir else ():
            yield from _entry(f"{git_dir}/{name}", since)
        if place.is_dir():
            pending.append(str(place))
        else:
            yield from _entry(str(place), since)
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                inside = list(entries)
        except OSError:
            continue  # it is being removed at this moment
        for entry in inside:
            if entry.name in _NOT_WORK or entry.path in skipped:
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
                yield entry.path, None
            else:
                yield from _entry(entry.path, since)


def _entry(path: str, since: float) -> Iterator[tuple[str, float | None]]:
    """Yield a file, with the time of its change if it was written, made or moved here after `since`."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    # Unlike the time of modification, this one is also that of a copy that keeps times, and of a move.
    changed = stat.S_ISREG(found.st_mode) and found.st_ctime > since
    yield path, found.st_ctime if changed else None


def _digest(path: Path) -> str:
    digest = content_digest(read_plain(path, MOST_BYTES))
    size = path.stat().st_size
    return f"{digest} {size}" if size > MOST_BYTES else digest

"""Locks of git that no process holds, removed with proof from what the kernel says about processes.

A lock may be held by a process that has it open, by any program that works in a folder of a story's own, and
by a git command that works in a folder that everybody shares. Whatever holds a lock was there before it, so
commands that come and go beside an old lock do not hold it.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

_PROC = Path("/proc")
_SHELLS = frozenset({"bash", "dash", "fish", "ksh", "sh", "zsh"})
_LOOKS, _BETWEEN = 20, 0.1
"""Somebody's git command in the repository is over soon, as a rule."""
_BEGAN = 18
"""Where `stat` says when a process began, counted after its state."""


def remove_unheld(locks: Iterable[Path], *, own: Sequence[Path], shared: Sequence[Path]) -> tuple[Path, ...]:
    """Remove locks if none of them is held, and return those that were removed.

    A program that works in a folder of `own` may hold one; so may a git command in one of `shared`. Blocks,
    for a few seconds at most. Locks that may be in use stay.
    """
    locks = tuple(locks)
    if not locks or not _PROC.is_dir():
        return ()
    before: dict[Path, tuple[int, int, int]] = {}
    suspects: set[tuple[str, str]] = set()
    for _ in range(_LOOKS):
        found = {lock: seen for lock in locks if (seen := _identity(lock)) is not None}
        if not found:
            return ()
        if found != before:
            before, suspects = found, _users(found, own, shared)
        else:
            suspects = {each for each in suspects if _began(_PROC / each[0]) == each[1]}
            if not suspects:
                return tuple(lock for lock, seen in found.items() if _remove(lock, seen))
        time.sleep(_BETWEEN)
    return ()


def _identity(lock: Path) -> tuple[int, int, int] | None:
    """Return what tells a lock from another one of the same name; None if there is none."""
    try:
        seen = lock.lstat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_mtime_ns


def _remove(lock: Path, seen: tuple[int, int, int]) -> bool:
    if _identity(lock) != seen:
        return False
    lock.unlink(missing_ok=True)
    return True


def _users(
    locks: dict[Path, tuple[int, int, int]], own: Sequence[Path], shared: Sequence[Path]
) -> set[tuple[str, str]]:
    """Return the processes that may hold one of the locks, each by its id and when it began."""
    held = {seen[:2] for seen in locks.values()}
    return {
        (process.name, began)
        for process in _PROC.iterdir()
        if process.name.isdigit() and (began := _began(process)) and _may_hold(process, held, own, shared)
    }


def _began(process: Path) -> str:
    """Return when a process began; empty if it has ended, and holds nothing any more."""
    try:
        state, *fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[_BEGAN] if state != "Z" else ""


def _may_hold(process: Path, held: set[tuple[int, int]], own: Sequence[Path], shared: Sequence[Path]) -> bool:
    try:
        name = (process / "comm").read_text().strip()
    except OSError:
        return False  # it has ended
    is_git = name.startswith("git")
    try:
        works_in = (process / "cwd").readlink()
        # A shell that waits there for its user holds nothing; what it starts is a process of its own.
        folders = [*(own if name not in _SHELLS else ()), *(shared if is_git else ())]
        if any(works_in.is_relative_to(folder) for folder in folders):
            return True
        opened = list((process / "fd").iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return is_git  # another user's, which cannot be looked into
    return any(_is_one_of(descriptor, held) for descriptor in opened)


def _is_one_of(descriptor: Path, held: set[tuple[int, int]]) -> bool:
    try:
        seen = descriptor.stat()
    except OSError:
        return False
    return (seen.st_dev, seen.st_ino) in held

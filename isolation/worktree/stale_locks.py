"""Locks that a killed git command of a story left behind, removed with proof that no process holds them.

A session that is killed while it commits leaves `index.lock` or the lock of its branch, and every later git
command there fails. Such a lock is removed only if it lies in the git directory of the story's own worktree
or names the story's own branch, and if it is not held: no process has it open, no program works in the
worktree, and for the lock of the branch no git command works in the main checkout either. Who holds a lock
was there before it, so commands that come and go beside an old lock are none of its holders. Callers make
sure that no session of the story lives. Locks of the whole repository, such as that of its configuration, may
be the user's: they stay. So do all but the lock of the branch where a story works in the shared tree.
"""

import os
import time
from pathlib import Path

from isolation.git.checkout import admin_dir
from isolation.git.contained.private_refs import lock_of
from isolation.git.repository import Repository

_PROC = Path("/proc")
_SHELLS = frozenset({"bash", "dash", "fish", "ksh", "sh", "zsh"})
_LOOKS, _BETWEEN = 20, 0.1
"""Somebody's git command in the repository is over soon, as a rule."""
_BEGAN = 18
"""Where `stat` says when a process began, counted after its state."""


def remove_stale_locks(repository: Repository, path: Path | None, branch: str) -> tuple[Path, ...]:
    """Remove a story's locks that no process holds, and return them; without a `path`, of its branch only.

    Blocks, for a few seconds at most. A lock that may be in use stays; the git command that meets it says so.
    """
    locks = _locks(repository, path, branch)
    if not locks or not _PROC.is_dir():
        return ()
    before: dict[Path, tuple[int, int, int]] = {}
    suspects: set[tuple[str, str]] = set()
    for _ in range(_LOOKS):
        found = {lock: seen for lock in locks if (seen := _identity(lock)) is not None}
        if not found:
            return ()
        if found != before:
            before, suspects = found, _users(repository, path, found)
        else:
            suspects = {each for each in suspects if _began(_PROC / each[0]) == each[1]}
            if not suspects:
                return tuple(lock for lock, seen in found.items() if _remove(lock, seen))
        time.sleep(_BETWEEN)
    return ()


def _locks(repository: Repository, path: Path | None, branch: str) -> list[Path]:
    common = repository.common_dir
    of_branch = [common / "refs" / "heads" / f"{branch}.lock"]
    # A linked worktree has a git directory of its own; without one, the locks are those of the repository.
    own = admin_dir(repository, path) if path is not None else None
    found = [*own.glob("*.lock"), *own.glob("refs/**/*.lock")] if own is not None else []
    if path is not None:
        of_branch.append(lock_of(common, path.name))
    return [*found, *filter(os.path.lexists, of_branch)]


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
    repository: Repository, path: Path | None, locks: dict[Path, tuple[int, int, int]]
) -> set[tuple[str, str]]:
    """Return the processes that may hold one of the locks, each by its id and when it began."""
    held = {seen[:2] for seen in locks.values()}
    git_dir = admin_dir(repository, path) if path is not None else None
    own = [path, git_dir] if path is not None and git_dir is not None else []
    # A git command in the main checkout can hold the lock of any branch, but not those of a worktree.
    of_branch = any(git_dir not in lock.parents for lock in locks)
    shared = [repository.top, repository.common_dir] if of_branch else []
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


def _may_hold(process: Path, held: set[tuple[int, int]], own: list[Path], shared: list[Path]) -> bool:
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

"""Locks that a killed git command of a story left behind, removed with proof that no process holds them.

A session that is killed while it commits leaves `index.lock` or the lock of its branch, and every later git
command there fails. Such a lock is removed only if it lies in the git directory of the story's own worktree
or names the story's own branch, and if it is not held: no process has it open, no program works in the
worktree, and for the lock of the branch no git command works in the main checkout either. Callers make sure
that no session of the story lives. Locks of the whole repository, such as that of its configuration, may be
the user's: they stay.
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


def remove_stale_locks(repository: Repository, path: Path, branch: str) -> tuple[Path, ...]:
    """Remove the locks of a story's worktree that no process holds, and return them.

    Blocks, for a few seconds at most. A lock that may be in use stays; the git command that meets it says so.
    """
    locks = _locks(repository, path, branch)
    if not locks or not _PROC.is_dir():
        return ()
    for _ in range(_LOOKS):
        found = {lock: seen for lock in locks if (seen := _identity(lock)) is not None}
        if not found:
            return ()
        time.sleep(_BETWEEN)
        if all(_identity(lock) == seen for lock, seen in found.items()) and not _is_used(
            repository, path, found
        ):
            return tuple(lock for lock, seen in found.items() if _remove(lock, seen))
    return ()


def _locks(repository: Repository, path: Path, branch: str) -> list[Path]:
    git_dir = admin_dir(repository, path)
    # A linked worktree has a git directory of its own; without one, the locks are those of the repository.
    own = git_dir if git_dir is not None and git_dir != repository.common_dir else None
    found = [*own.glob("*.lock"), *own.glob("refs/**/*.lock")] if own is not None else []
    common = repository.common_dir
    of_branch = (common / "refs" / "heads" / f"{branch}.lock", lock_of(common, path.name))
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


def _is_used(repository: Repository, path: Path, locks: dict[Path, tuple[int, int, int]]) -> bool:
    """Whether any process may hold one of the locks."""
    held = {seen[:2] for seen in locks.values()}
    git_dir = admin_dir(repository, path)
    own = [path, git_dir] if git_dir not in {None, repository.common_dir} else []
    # A git command in the main checkout can hold the lock of any branch, but not those of a worktree.
    of_branch = any(git_dir not in lock.parents for lock in locks)
    shared = [repository.top, repository.common_dir] if of_branch else []
    return any(_may_hold(process, held, own, shared) for process in _PROC.iterdir() if process.name.isdigit())


def _may_hold(process: Path, held: set[tuple[int, int]], own: list[Path], shared: list[Path]) -> bool:
    try:
        name = (process / "comm").read_text().strip()
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False  # it has ended
    is_git = name.startswith("git")
    if state == "Z":
        return False  # it holds nothing any more
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

"""Locks that a killed git command of a story left behind, removed with proof that no process holds them.

A session that is killed while it commits leaves `index.lock` or the lock of its branch, and every later git
command there fails. Such a lock is removed only if it lies in the git directory of the story's own worktree
or names the story's own branch, and if it is not held: no process has it open, no program works in the
worktree, and for the lock of the branch no git command works in the main checkout either. Callers make sure
that no session of the story lives. Locks of the whole repository, such as that of its configuration, may be
the user's: they stay. So do all but the lock of the branch where a story works in the shared tree.
"""

import os
from pathlib import Path

from isolation.files.unheld_locks import remove_unheld
from isolation.git.checkout import admin_dir
from isolation.git.contained.private_refs import lock_of
from isolation.git.repository import Repository


def may_have_locks(repository: Repository, path: Path | None, branch: str) -> bool:
    """Whether there may be a lock to remove: a few looks, which take less than to wait for a thread.

    It does not look into a worktree that is there: a session may have its `.git` lead to a disk that hangs.
    """
    if path is not None and os.path.lexists(path):
        return True
    return bool(_locks(repository.common_dir, path, branch, None))


def remove_stale_locks(repository: Repository, path: Path | None, branch: str) -> tuple[Path, ...]:
    """Remove a story's locks that no process holds, and return them; without a `path`, of its branch only.

    Blocks, for a few seconds at most. A lock that may be in use stays; the git command that meets it says so.
    """
    # A linked worktree has a git directory of its own; without one, the locks are those of the repository.
    git_dir = admin_dir(repository, path) if path is not None else None
    locks = _locks(repository.common_dir, path, branch, git_dir)
    # A git command in the main checkout can hold the lock of any branch, but not those of a worktree.
    of_branch = any(git_dir not in lock.parents for lock in locks)
    return remove_unheld(
        locks,
        own=[path, git_dir] if path is not None and git_dir is not None else (),
        shared=[repository.top, repository.common_dir] if of_branch else (),
    )


def _locks(common: Path, path: Path | None, branch: str, git_dir: Path | None) -> list[Path]:
    of_branch = [f"{common}/refs/heads/{branch}.lock"]
    if path is not None:
        of_branch.append(lock_of(common, path.name))
    found = map(Path, filter(os.path.lexists, of_branch))
    return [*(_locks_in(git_dir) if git_dir is not None else ()), *found]


def _locks_in(git_dir: Path) -> list[Path]:
    """Return the locks in the git directory of a worktree, and those of its own refs."""
    try:
        names = os.listdir(git_dir)  # noqa: PTH208  names are enough, and there is hardly ever a lock
    except OSError:
        return []
    of_refs = git_dir.glob("refs/**/*.lock") if "refs" in names else ()
    return [*(git_dir / name for name in names if name.endswith(".lock")), *of_refs]

"""What a power failure leaves of worktrees: locks without a holder, and files of git's that are empty.

A worktree is on the disk before a session works in it, so one whose own files are empty holds no work of a
session. It is set aside all the same, never deleted, and made again.
"""

import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from isolation.git.checkout import admin_dir, worktree_of
from isolation.git.registrations import removed_entries
from isolation.git.repository import Repository
from isolation.worktree.checkout_files import is_occupied

_LONGEST_LOCK = 10.0
"""Longer than git holds these locks without somebody who has the tree open."""
_PAUSE = 0.05
_POINTERS = ("gitdir", "commondir", "HEAD")


def set_aside_torn(repository: Repository, path: Path) -> None:
    """Set a worktree aside whose registration was cut off. The caller holds the metadata lock."""
    entries = repository.common_dir / "worktrees"
    numbered = re.compile(rf"{re.escape(path.name)}\d*")  # as git names them
    with suppress(FileNotFoundError):
        for entry in [each for each in entries.iterdir() if numbered.fullmatch(each.name)]:
            belongs = _is_empty(entry / "gitdir") or worktree_of(entry) == path
            if belongs and any(_is_empty(entry / name) for name in _POINTERS):
                trash = removed_entries(repository)
                trash.mkdir(parents=True, exist_ok=True)
                entry.rename(trash / f"{entry.name}-{secrets.token_hex(6)}")
                _set_aside(path)
    if _is_empty(path / ".git"):
        _set_aside(path)


def release_locks(repository: Repository, path: Path, branch: str) -> None:
    """Remove the locks of a story's worktree and branch that a git command left which was cut off.

    The caller holds the lease, knows that the story was begun, and no process of an earlier run is left.
    """
    git_dir = admin_dir(repository, path)
    if git_dir is not None:
        for lock in (git_dir / "HEAD.lock", git_dir / "index.lock"):
            # A commit that waits for its message in an editor holds the index for long.
            _release(lock, unless=lambda: is_occupied(path) is not False)
    release_branch(repository, branch)


def release_branch(repository: Repository, branch: str) -> None:
    """Do the same for the branch alone, of a story that works in the shared tree."""
    _release(repository.common_dir / "refs" / "heads" / f"{branch}.lock")


def _release(lock: Path, *, unless: Callable[[], bool] = lambda: False) -> None:
    with suppress(FileNotFoundError):
        while abs(time.time() - lock.stat().st_mtime) <= _LONGEST_LOCK:
            time.sleep(_PAUSE)
        if not unless():
            lock.unlink()


def _set_aside(path: Path) -> None:
    if os.path.lexists(path):
        path.rename(path.with_name(f"{path.name}.torn-{secrets.token_hex(3)}"))


def _is_empty(file: Path) -> bool:
    """Whether a file is there and has nothing in it."""
    try:
        return file.is_file() and file.stat().st_size == 0
    except OSError:
        return False

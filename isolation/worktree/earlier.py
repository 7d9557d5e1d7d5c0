"""Work of earlier runs that is in the way of a new one: moved to another name, never deleted.

A folder goes to `.earlier` below the worktree root, a branch to `autopilot-earlier/`.
"""

import os
import secrets
import time
from pathlib import Path

from isolation.errors import WorkspaceError
from isolation.git.checkout import admin_dir, admin_dir_of_missing
from isolation.git.metadata_lock import metadata_lock
from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository

EARLIER = ".earlier"
BRANCHES = "autopilot-earlier/"


def set_orphan_aside(repository: Repository, path: Path) -> Path | None:
    """Move a worktree whose clone is gone; return where it is now, or None if the path is no such folder."""
    pointer = path / ".git"
    if path.is_symlink() or not pointer.is_file() or admin_dir_of_missing(repository, path) is not None:
        return None
    text = os.fsdecode(pointer.read_bytes())
    git_dir = path / text.removeprefix("gitdir:").strip()
    # Only a worktree points into a folder of that name; a submodule, for example, does not.
    if not text.startswith("gitdir:") or git_dir.parent.name != "worktrees" or git_dir.exists():
        return None
    return _moved(path)


def set_branch_aside(repository: Repository, branch: str, path: Path | None = None) -> str:
    """Rename a branch, and move the worktree at `path` that is on it; return the new name of the branch.

    Raises if it is checked out elsewhere, since somebody may work there.
    """
    with metadata_lock(repository.common_dir):
        places = [entry.path for entry in load_registrations(repository) if entry.branch == branch]
        for place in places:
            if place != path:
                raise WorkspaceError(
                    f"branch {branch} is from an earlier run and checked out at {place}",
                    hint="switch to another branch there, then try again",
                )
        if path is not None and places and admin_dir(repository, path) is not None:
            repository.run("worktree", "repair", str(_moved(path)))
        new = f"{BRANCHES}{branch.rpartition('/')[2]}-{_mark()}"
        repository.run("branch", "-m", branch, new)
    return new


def _moved(path: Path) -> Path:
    folder = path.parent / EARLIER
    target = folder / f"{path.name}-{_mark()}"
    try:
        folder.mkdir(exist_ok=True)
        path.rename(target)
    except OSError as error:
        raise WorkspaceError(
            f"cannot move {path} to {target}: {error.strerror}", hint="move it away, then run again"
        ) from error
    return target


def _mark() -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{secrets.token_hex(2)}"

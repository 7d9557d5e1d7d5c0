"""A worktree of a commit, on no branch, that is gone when its block is left: for questions about the commit.

It is provisioned like a story's worktree, so that a command finds in it what it finds in a story's. No work
is done there: it holds a commit and what commands left beside it, so it is removed without a search for
changes. What a killed run left of it is removed by the next one.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from isolation.errors import GitCommandError, WorkspaceError
from isolation.git.metadata_lock import metadata_lock
from isolation.git.registrations import clear_begun, clear_missing, load_registrations, lock_reason
from isolation.git.repository import Repository, offload
from isolation.model import Workspace
from isolation.paths import require_component
from isolation.worktree.checkout_files import populate, require_complete
from isolation.worktree.provision import ProvisionReport, provision, require_inside
from isolation.worktree.removal import discard

if TYPE_CHECKING:
    import trio

_GRACE = 60.0


@asynccontextmanager
async def open_throwaway(
    repository: Repository,
    *,
    run_id: str,
    path: Path,
    commit: str,
    limiter: "trio.CapacityLimiter",
    symlink_directories: Sequence[str] = (),
    mounted: bool = False,
) -> AsyncIterator[tuple[Workspace, ProvisionReport]]:
    """Check a commit out at `path` for as long as the block lasts; the name of its folder is its owner's."""
    import trio

    require_inside(symlink_directories)
    try:
        await offload(_register, repository, run_id, path, commit)
        try:
            await offload(_fill, repository, path, commit, limiter=limiter)
            provide = partial(provision, repository, path, symlink_directories, mounted=mounted)
            report = await offload(provide)
            workspace = Workspace(path=path, branch="", base=commit, head=commit, reattached=False)
            yield workspace, report
        finally:
            # Only moved to the trash, which costs next to nothing; the end of the run empties it.
            with trio.move_on_after(_GRACE, shield=True):
                await offload(lambda: discard(repository, path, sweep=False))
    except GitCommandError as error:
        raise WorkspaceError(error.message, hint=error.hint) from error


def clear_leftovers(repository: Repository, root: Path, names: re.Pattern[str]) -> None:
    """Remove what a killed run left at paths with such names below `root`. Blocking."""
    with metadata_lock(repository.common_dir):
        clear_begun(repository, names)
    for entry in load_registrations(repository):
        # What is not ours is refused when the place is used.
        if entry.path.parent == root and names.fullmatch(entry.path.name) and entry.run_id is not None:
            _clear_leftover(repository, entry.path)
    for path in root.glob("*"):
        if names.fullmatch(path.name):
            with suppress(OSError):  # git had not written anything into it
                path.rmdir()


def _register(repository: Repository, run_id: str, path: Path, commit: str) -> None:
    name = require_component(path.name, "worktree folder")
    _clear_leftover(repository, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    reason = lock_reason(require_component(run_id, "run id"), name)
    args = ("worktree", "add", "--detach", "--no-checkout", "--lock", "--reason", reason, str(path), commit)
    with metadata_lock(repository.common_dir):
        repository.run(*args)


def _clear_leftover(repository: Repository, path: Path) -> None:
    """Remove what a killed run left at this path; anything that is not ours is refused."""
    here = next((entry for entry in load_registrations(repository) if entry.path == path), None)
    ours = here is not None and here.run_id is not None and here.branch is None
    if not path.exists() and not path.is_symlink():
        if ours:  # killed before the folder was made, or after it was moved to the trash
            with metadata_lock(repository.common_dir):
                clear_missing(repository, path)
        return
    reason = discard(repository, path, sweep=False) if ours else "it is not a worktree of this program"
    if reason:
        raise WorkspaceError(f"{path} is in the way: {reason}", hint="move it away, then run again")


def _fill(repository: Repository, path: Path, commit: str) -> None:
    filled = populate(repository, path, commit)
    require_complete(repository, path, branch=None, tip=commit, filled=filled)

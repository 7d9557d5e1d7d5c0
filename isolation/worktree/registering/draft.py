"""A new worktree on a new branch, registered without git, and without a wait for the disk under the lock.

First the branch is made, under git's own lock of it, and the entry is drafted where git does not see it. Both
are on the disk before the metadata lock is taken, for which all stories wait. Under it the draft becomes the
entry in one step. A kill in between leaves a branch at the base, which the next attempt continues from.
"""

import errno
import os
from pathlib import Path

from isolation.errors import GitCommandError
from isolation.files.deletion import delete_tree
from isolation.git.branches import delete_branch
from isolation.git.direct.linked import add_entry, draft_entry, is_simple
from isolation.git.registrations import lock_reason
from isolation.git.repository import GitOutput, Repository, failure
from isolation.model import WorkspaceRequest
from isolation.worktree.power_loss import UNSETTLED


def drafted(repository: Repository, request: WorkspaceRequest, base: str) -> Path | None:
    """Make the branch of a new worktree, and draft its entry, which takes git three processes.

    None, and nothing is left, if there is something already, or only git can do it.
    """
    common, branch = repository.common_dir, request.branch
    if os.path.lexists(request.path) or repository.branch_tip(branch) or not is_simple(common):
        return None
    try:
        draft = draft_entry(
            common, request.path, branch, lock_reason(request.run_id, request.story_id), mark=UNSETTLED
        )
    except OSError as error:
        raise _not_registered(request, error) from error
    if repository.make_branch(branch, base).returncode == 0:
        return draft
    delete_tree(draft)
    return None


def make_branch_ahead(repository: Repository, request: WorkspaceRequest, base: str) -> bool:
    """Make the branch of a worktree that is a spare; False if there is something already, or git has to."""
    if os.path.lexists(request.path) or repository.branch_tip(request.branch):
        return False
    return repository.make_branch(request.branch, base).returncode == 0


def add_drafted(repository: Repository, request: WorkspaceRequest, base: str, draft: Path) -> bool:
    """Register a worktree by its draft; False, and nothing is left, if the two are on different disks."""
    try:
        add_entry(repository.common_dir, draft, request.path, request.branch, base)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise _not_registered(request, error) from error
        delete_tree(draft)
        delete_branch(repository, request.branch, base)
        return False
    return True


def _not_registered(request: WorkspaceRequest, error: OSError) -> GitCommandError:
    said = f"fatal: could not register {request.path}: {error.strerror}"
    return failure(("worktree", "add", str(request.path)), GitOutput(returncode=128, stdout="", stderr=said))

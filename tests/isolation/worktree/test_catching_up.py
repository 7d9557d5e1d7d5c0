"""A story that has a branch already goes on from what it is to start from now, and loses nothing."""

import pytest
import trio
from msgspec.structs import replace

from isolation.errors import MergeConflictError, WorkspaceError
from isolation.git.repository import Repository
from isolation.model import Workspace
from isolation.worktree import opening as worktree
from tests.conftest import git
from tests.isolation.worktree.worktrees import commit, make, wanted


async def reopen(repository: Repository, base: str, *, needed: bool = False) -> Workspace:
    """Open the worktree of story `one` again, from another commit."""
    request = replace(wanted(repository, "one", run="run-2", base=base), needs_parents=needed)
    with trio.fail_after(60):
        return await worktree.create_or_attach(repository, request, trio.CapacityLimiter(2))


def contains(workspace: Workspace, revision: str) -> bool:
    """Return whether a commit is in the history of what is checked out."""
    return revision in git(workspace.path, "rev-list", "HEAD").split()


async def test_a_worktree_without_work_moves_on_to_the_new_base(repository: Repository) -> None:
    """What a killed run had prepared does not hold its story to a base of yesterday."""
    await make(repository, "one")
    base = commit(repository.top, "news")
    workspace = await reopen(repository, base)
    assert (workspace.base, workspace.head) == (base, base)
    assert (workspace.path / "news").exists()
    assert git(workspace.path, "status", "--porcelain") == ""


async def test_uncommitted_work_stays_on_the_base_it_began_at(repository: Repository) -> None:
    """A new base alone does not touch what was left in the worktree."""
    before = await make(repository, "one")
    (before.path / "left").write_text("mine")
    workspace = await reopen(repository, commit(repository.top, "news"))
    assert workspace.head == before.head
    assert (workspace.path / "left").read_text() == "mine"


@pytest.mark.parametrize("kept", [True, False])
async def test_a_branch_with_work_is_merged_with_what_it_needs(repository: Repository, *, kept: bool) -> None:
    """Acceptance 23: a dependency that came later is in the story's history, with its tree kept or not."""
    before = await make(repository, "one")
    own = commit(before.path, "own")
    if not kept:
        git(repository.top, "worktree", "remove", "--force", "--force", str(before.path))
    needed = commit(repository.top, "needed")
    workspace = await reopen(repository, needed, needed=True)
    assert contains(workspace, own)
    assert contains(workspace, needed)
    assert {"own", "needed"} <= {path.name for path in workspace.path.iterdir()}
    assert workspace.base == needed, "only its own changes are held against its claim"


async def test_what_it_needs_does_not_overwrite_uncommitted_work(repository: Repository) -> None:
    """Acceptance 13: the story is refused and says which files are in the way."""
    before = await make(repository, "one")
    (before.path / "needed").write_text("mine")
    needed = commit(repository.top, "needed")
    with pytest.raises(WorkspaceError, match="in the way of what one depends on: needed"):
        await reopen(repository, needed, needed=True)
    assert (before.path / "needed").read_text() == "mine"


async def test_work_that_does_not_merge_with_what_it_needs_is_refused(repository: Repository) -> None:
    """Acceptance 24: a conflict names the files, and the branch stays where it is."""
    before = await make(repository, "one")
    own = commit(before.path, "same", "one")
    needed = commit(repository.top, "same", "two")
    with pytest.raises(MergeConflictError, match="same"):
        await reopen(repository, needed, needed=True)
    assert git(before.path, "rev-parse", "HEAD").strip() == own

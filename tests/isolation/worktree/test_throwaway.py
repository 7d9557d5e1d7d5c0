"""Throwaway worktrees: what a killed process left of one does not stop the next."""

import shutil
from pathlib import Path

import trio

from isolation.git.registrations import load_registrations, lock_reason
from isolation.git.repository import Repository
from isolation.worktree.throwaway import open_throwaway
from tests.conftest import git


async def test_a_registration_without_its_folder_is_replaced(repo: Path) -> None:
    """A kill before the folder was made, or after it was moved away, leaves only the locked registration."""
    repository, path = Repository.open(repo), repo.parent / "trees" / "_land"
    path.parent.mkdir()
    head = git(repo, "rev-parse", "HEAD").strip()
    reason = lock_reason("run", "_land")
    git(repo, "worktree", "add", "-q", "--detach", "--lock", "--reason", reason, str(path))
    shutil.rmtree(path)
    async with open_throwaway(
        repository, run_id="next", path=path, commit=head, limiter=trio.CapacityLimiter(1)
    ) as (workspace, _):
        assert workspace.head == head
        assert (path / ".git").exists()
    assert not path.exists()
    assert [entry.path for entry in load_registrations(repository)] == [repo]

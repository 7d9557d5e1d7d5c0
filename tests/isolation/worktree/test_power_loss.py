"""What a power failure leaves of a worktree, as a disk shows it afterwards: empty files and old locks."""

import os
import time
from pathlib import Path

import pytest

from isolation.git.repository import Repository
from isolation.worktree.stale_locks import remove_stale_locks
from tests.conftest import git
from tests.isolation.worktree.worktrees import git_dir_of, make


@pytest.mark.parametrize("torn", ["gitdir", "commondir", "HEAD", ".git"])
async def test_a_worktree_that_was_cut_off_in_its_making_is_made_again(
    repository: Repository, torn: str
) -> None:
    """Its folder is set aside with all that is in it, and the repository is sound."""
    workspace = await make(repository, "one")
    folder = workspace.path if torn == ".git" else git_dir_of(workspace.path)
    (workspace.path / "kept").write_text("kept\n")
    (folder / torn).write_bytes(b"")
    again = await make(repository, "one")
    assert again.path == workspace.path
    assert git(again.path, "status", "--porcelain") == ""
    (aside,) = again.path.parent.glob("one.torn-*")
    assert (aside / "kept").read_text() == "kept\n"
    git(repository.top, "fsck", "--strict", "--no-dangling")


async def test_a_worktree_that_was_cut_off_holds_up_no_other_story(repository: Repository) -> None:
    """Git itself adds no worktree while one has an empty `commondir`; one that is not ours is left alone."""
    cut_off = await make(repository, "one")
    (cut_off.path / "kept").write_text("kept\n")
    (git_dir_of(cut_off.path) / "commondir").write_bytes(b"")
    other = await make(repository, "two")
    assert git(other.path, "status", "--porcelain") == ""
    (aside,) = other.path.parent.glob("one.torn-*")
    assert (aside / "kept").read_text() == "kept\n"
    foreign = repository.top.parent / "by-hand"
    git(repository.top, "worktree", "add", "-q", "--detach", str(foreign))
    (git_dir_of(foreign) / "commondir").write_bytes(b"")
    third = await make(repository, "three")
    assert git(third.path, "status", "--porcelain") == ""
    assert (foreign / ".git").exists()


async def test_old_locks_of_a_story_that_was_begun_are_released(repository: Repository) -> None:
    """Only those of its own worktree and branch; a lock of the repository is somebody else's."""
    workspace = await make(repository, "one")
    git_dir, common = git_dir_of(workspace.path), repository.common_dir
    own = [git_dir / "HEAD.lock", git_dir / "index.lock", common / "refs/heads/autopilot/one.lock"]
    others = [common / "index.lock", common / "packed-refs.lock", common / "refs/heads/main.lock"]
    for lock in (*own, *others):
        _make_old(lock)
    assert set(remove_stale_locks(repository, workspace.path, workspace.branch)) == set(own)
    again = await make(repository, "one")
    assert again.reattached
    assert not [lock for lock in own if lock.exists()]
    assert all(lock.exists() for lock in others)


def _make_old(lock: Path) -> None:
    lock.touch()
    os.utime(lock, (time.time() - 60,) * 2)

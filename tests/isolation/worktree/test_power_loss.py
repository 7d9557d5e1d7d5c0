"""What a power failure leaves of a worktree, as a disk shows it afterwards: empty files and old locks."""

import os
import time
from pathlib import Path

import pytest
import trio

from isolation.git.repository import Repository
from isolation.model import Workspace
from isolation.worktree.opening import create_undoable
from isolation.worktree.power_loss import UNSETTLED, settle
from isolation.worktree.stale_locks import remove_stale_locks
from tests.conftest import git
from tests.isolation.worktree.worktrees import git_dir_of, make, wanted

TEXT = "".join(f"line {number}\n" for number in range(200))
NAMES = ("a.txt", "b.txt", "deep/c.txt", "deep/d.txt")


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


async def test_a_folder_with_nothing_but_an_empty_pointer_is_used_again(repository: Repository) -> None:
    """So a kill in the middle of its first file leaves it; nothing in it is worth keeping aside."""
    path = wanted(repository, "one").path
    path.mkdir(parents=True)
    (path / ".git").touch()
    workspace = await make(repository, "one")
    assert git(workspace.path, "status", "--porcelain") == ""
    assert not [*path.parent.glob("one.torn-*")]


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


@pytest.fixture
def several(repository: Repository) -> Repository:
    """Return a repository with several files of some length."""
    (repository.top / "deep").mkdir()
    for name in NAMES:
        (repository.top / name).write_text(f"{name}\n{TEXT}")
    git(repository.top, "add", "-A")
    git(repository.top, "commit", "-q", "-m", "several files")
    return repository


async def _unsettled(repository: Repository) -> Workspace:
    """Open a worktree as a run does, whose first session may work before its files are on the disk."""
    with trio.fail_after(60):
        limiter = trio.CapacityLimiter(2)
        workspace, _ = await create_undoable(repository, wanted(repository, "one"), limiter)
    assert workspace.unsettled == git_dir_of(workspace.path) / UNSETTLED
    assert workspace.unsettled.exists()
    return workspace


def _tear(workspace: Workspace, index: str) -> None:
    """Leave of the files what a power failure may leave: nothing, the beginning, or no name."""
    first, second, third, _ = (workspace.path / name for name in NAMES)
    os.truncate(first, 0)
    os.truncate(second, 100)
    third.unlink()
    file = git_dir_of(workspace.path) / "index"
    if index == "empty":
        file.write_bytes(b"")
    elif index == "torn":
        file.write_bytes(file.read_bytes()[:-40] + bytes(40))


@pytest.mark.parametrize("index", ["whole", "empty", "torn"])
async def test_files_that_were_not_on_the_disk_are_checked_out_again(several: Repository, index: str) -> None:
    """The index says nothing of them, and may itself be torn."""
    workspace = await _unsettled(several)
    _tear(workspace, index)
    again = await make(several, "one")
    assert again.path == workspace.path
    assert git(again.path, "status", "--porcelain") == ""
    assert (again.path / NAMES[0]).read_text() == f"{NAMES[0]}\n{TEXT}"
    assert not (git_dir_of(again.path) / UNSETTLED).exists()


@pytest.mark.parametrize("index", ["whole", "empty", "torn"])
async def test_what_a_session_has_done_by_then_stays(several: Repository, index: str) -> None:
    """Only what is certainly torn is written again."""
    workspace = await _unsettled(several)
    _tear(workspace, index)
    (workspace.path / NAMES[3]).write_text("another text\n")
    (workspace.path / "new.txt").write_text("new\n")
    again = await make(several, "one")
    assert git(again.path, "status", "--porcelain") == f" M {NAMES[3]}\n?? new.txt\n"
    assert (again.path / NAMES[3]).read_text() == "another text\n"
    assert not (git_dir_of(again.path) / UNSETTLED).exists()


async def test_once_they_are_on_the_disk_all_that_differs_is_work(several: Repository) -> None:
    """A session may empty a file."""
    workspace = await _unsettled(several)
    assert workspace.unsettled is not None
    settle(workspace.path, workspace.unsettled)
    os.truncate(workspace.path / NAMES[0], 0)
    again = await make(several, "one")
    assert git(again.path, "status", "--porcelain") == f" M {NAMES[0]}\n"


async def test_a_worktree_for_the_user_is_on_the_disk_at_once(several: Repository) -> None:
    """What the user does in it is never taken for the trace of a power failure."""
    workspace = await make(several, "one")
    assert workspace.unsettled is None
    assert not (git_dir_of(workspace.path) / UNSETTLED).exists()


async def test_the_mark_goes_last(several: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that cannot write leaves it where it is."""
    workspace = await _unsettled(several)
    assert workspace.unsettled is not None

    def fails(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("isolation.worktree.power_loss.sync_disk", fails)
    with pytest.raises(OSError, match="Input/output error"):
        settle(workspace.path, workspace.unsettled)
    assert workspace.unsettled.exists()

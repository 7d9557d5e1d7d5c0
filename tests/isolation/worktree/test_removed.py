"""Removed worktrees are brought back whole for a day; only a few are kept, and none on a full disk."""

import time
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository
from isolation.model import Workspace
from isolation.paths import removed_dir, worktree_root
from isolation.worktree import removal as closing
from isolation.worktree.gc import undo
from isolation.worktree.opening import create_or_attach
from isolation.worktree.removed import store
from tests.conftest import git
from tests.isolation.worktree.worktrees import commit, make, wanted


async def _closed(repository: Repository, name: str = "one", *, run: str = "run-1") -> Workspace:
    """Return a worktree that was removed after a story had worked in it, with a file that git ignores."""
    workspace = await make(repository, name, run=run)
    commit(workspace.path, "work", "done\n")
    repository.exclude("/built")
    (workspace.path / "built").mkdir()
    (workspace.path / "built" / "log").write_text("hours of work\n")
    assert (await closing.close(repository, workspace)).removed
    assert not worktree_root(repository.common_dir).exists()
    return workspace


async def test_a_removed_worktree_comes_back_as_it_was(repository: Repository) -> None:
    """On its branch, clean, locked, with ignored files and its own configuration; gc can remove it again."""
    (repository.top / "out").mkdir()
    commit(repository.top, "out/f", "x")
    request = replace(wanted(repository, "sparse"), sparse=())
    limiter = trio.CapacityLimiter(1)
    sparse = await create_or_attach(repository, request, limiter)
    assert (await closing.close(repository, sparse)).removed
    workspace = await _closed(repository)
    assert len(load_registrations(repository)) == 1
    restored = {each.path: each for each in undo(repository)}
    assert {path.name: each.restored for path, each in restored.items()} == {"one": True, "sparse": True}
    assert restored[workspace.path].reason == "on autopilot/one"
    assert (workspace.path / "built" / "log").read_text() == "hours of work\n"
    for path in restored:
        assert git(path, "status", "--porcelain", "--branch").splitlines() == [f"## autopilot/{path.name}"]
        assert not (path / "out").exists() or path.name == "one"
    assert [entry.run_id for entry in load_registrations(repository)[1:]] == ["run-1", "run-1"]
    assert undo(repository) == ()
    assert not any(removed_dir(repository.common_dir).iterdir())
    assert (await closing.close(repository, workspace)).removed
    assert [each.path.name for each in undo(repository)] == ["one"]


async def test_what_happened_since_is_respected(repository: Repository) -> None:
    """A branch that moved is not reset, what is in the way stays, one that was killed halfway comes back."""
    moved, taken, halfway = [await _closed(repository, name) for name in ("moved", "taken", "halfway")]
    tip = git(repository.top, "rev-parse", "autopilot/moved").strip()
    newer = git(repository.top, "commit-tree", "-m", "newer", "-p", tip, "main^{tree}").strip()
    git(repository.top, "branch", "-f", "autopilot/moved", newer)
    taken.path.mkdir(parents=True)
    (taken.path / "mine").write_text("x")
    (found,) = [each for each in store.load_removed(repository) if each.record.path == str(halfway.path)]
    (repository.common_dir / "worktrees").mkdir(exist_ok=True)
    found.entry.rename(repository.common_dir / "worktrees" / "halfway")
    restored = {each.path.name: each for each in undo(repository)}
    assert restored["moved"].reason == f"on no branch, at {tip[:10]}: autopilot/moved has moved since"
    assert git(moved.path, "rev-parse", "HEAD").strip() == tip
    assert git(moved.path, "status", "--porcelain") == ""
    assert (restored["taken"].restored, restored["taken"].reason) == (False, "something else is there now")
    assert [path.name for path in taken.path.iterdir()] == ["mine"]
    assert restored["halfway"].restored
    assert git(halfway.path, "status", "--porcelain", "--branch") == "## autopilot/halfway\n"
    assert [each.record.path for each in store.load_removed(repository)] == [str(taken.path)]


async def test_its_name_may_have_gone_to_another_worktree(repository: Repository) -> None:
    """Only the last run, or the last gc, is undone at once; a name in git's directory is not fought over."""
    workspace = await _closed(repository, run="run-1")
    (repository.common_dir / "worktrees").mkdir(exist_ok=True)
    git(repository.top, "worktree", "add", "-q", "-b", "x", str(repository.top.parent / "other" / "one"))
    await _closed(repository, "two", run="run-2")
    assert [each.path.name for each in undo(repository)] == ["two"]
    assert [(each.path, each.entry) for each in undo(repository)] == [(workspace.path, "one1")]
    assert git(workspace.path, "status", "--porcelain", "--branch") == "## autopilot/one\n"


def _removed(repository: Repository, number: int, *, age: float = 0.0) -> Path:
    folder = removed_dir(repository.common_dir) / str(number)
    (folder / "tree").mkdir(parents=True)
    at = time.time() - age
    store.record(folder, store.Removed(path=f"/{number}", branch=None, batch="x", at=at + number / 1000))
    return folder


def test_few_are_kept_and_not_for_long(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest stay; a tree that is being put there is left alone; a full disk keeps none."""
    root = removed_dir(repository.common_dir)
    store.expire_removed(repository)  # nothing there
    for number in range(4):
        _removed(repository, number)
    old = _removed(repository, 9, age=2 * store.KEPT_SECONDS)
    ahead = _removed(repository, 8, age=-2 * store.KEPT_SECONDS)  # by a clock that was wrong
    (root / "begun").mkdir()
    assert [each.record.path for each in store.load_removed(repository)] == ["/3", "/2", "/1", "/0"]
    store.thin_removed(repository, most=4)
    assert old.exists(), "deleted by the dozen, not one by one"
    store.expire_removed(repository, most=2)
    assert (old.exists(), ahead.exists()) == (False, False)
    assert sorted(path.name for path in root.iterdir()) == ["2", "3", "begun"]
    (root / "3" / "removed.json").write_bytes(b"{")
    assert [each.record.path for each in store.load_removed(repository)] == ["/2"]
    monkeypatch.setattr(store, "LEAST_FREE", 1 << 80)
    monkeypatch.setattr(store, "_PATIENCE_SECONDS", -1.0)
    store.thin_removed(repository)
    assert not root.exists()


async def test_a_full_disk_keeps_nothing(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree goes to the trash as ever."""
    monkeypatch.setattr(store, "LEAST_FREE", 1 << 80)
    await _closed(repository)
    assert not removed_dir(repository.common_dir).exists()
    assert undo(repository) == ()

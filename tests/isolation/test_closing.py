"""The end of a worktree: gone, or kept with the reason."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation import closing
from isolation.errors import RepositoryError
from isolation.layout import worktree_root
from isolation.registrations import load_registrations
from isolation.repository import Repository
from tests.conftest import git
from tests.isolation.worktrees import commit, git_dir_of, make


@pytest.fixture
def repository(repo: Path) -> Repository:
    return Repository.open(repo)


async def test_a_finished_clean_story_leaves_only_its_branch(repository: Repository) -> None:
    """Acceptance 14: tree and metadata gone, branch and commits kept, even ignored files do not hold it."""
    workspace = await make(repository)
    (repository.common_dir / "info" / "exclude").write_text("cache/\n")
    (workspace.path / "cache").mkdir()
    (workspace.path / "cache" / "x").write_text("x")
    (workspace.path / "cache").chmod(0o500)
    tip = commit(workspace.path)
    result = await closing.close(repository, workspace)
    assert result.removed
    assert not worktree_root(repository.common_dir).exists()
    assert not (repository.common_dir / "worktrees").exists()
    assert repository.branch_tip("autopilot/one") == tip


Spoil = Callable[[Path], object]


def _stage(path: Path) -> None:
    (path / "new").write_text("x")
    git(path, "add", "new")


def _detached_commit(path: Path) -> None:
    git(path, "checkout", "-q", "--detach")
    commit(path)


def _abandoned_commit(path: Path) -> None:
    _detached_commit(path)
    git(path, "switch", "-q", "autopilot/one")


def _merging(path: Path) -> None:
    (Path(git(path, "rev-parse", "--absolute-git-dir").strip()) / "MERGE_HEAD").write_text("x")


def _hidden_edit(path: Path) -> None:
    git(path, "update-index", "--skip-worktree", "README.md")
    (path / "README.md").write_text("hidden")


def _committed_repository(path: Path) -> None:
    git(path, "init", "-q", "-b", "main", "inner")
    commit(path / "inner")
    git(path, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    git(path, "commit", "-q", "-m", "gitlink")


def _stash(path: Path) -> None:
    (path / "README.md").write_text("stashed")
    git(path, "stash", "-q")


def _own_ref(path: Path) -> None:
    git(path, "update-ref", "refs/worktree/mine", "HEAD")


SPOILS: dict[str, tuple[Spoil, str]] = {
    "untracked": (lambda path: (path / "a b").write_text("x"), "1 uncommitted file: a b"),
    "modified": (lambda path: (path / "README.md").write_text("x"), "1 uncommitted file: README.md"),
    "staged": (_stage, "1 uncommitted file: new"),
    "many": (
        lambda path: [(path / f"f{number}").write_text("x") for number in range(7)],
        "7 uncommitted files: f0, f1, f2, f3, f4 and 2 others",
    ),
    "detached": (_detached_commit, "not reachable from autopilot/one"),
    "abandoned": (_abandoned_commit, "on no branch"),
    "merging": (_merging, "middle of a merge"),
    "hidden": (_hidden_edit, "skip-worktree or assume-unchanged: README.md"),
    "nested": (_committed_repository, "other git repositories: inner"),
    "stash": (_stash, "1 stash entry"),
    "ref": (_own_ref, "refs of its own"),
    "other branch": (lambda path: git(path, "switch", "-q", "-c", "other"), "on branch other"),
    "no git": (lambda path: (path / ".git").unlink(), "not a worktree of this repository"),
    "locked index": (
        lambda path: (Path(git(path, "rev-parse", "--absolute-git-dir").strip()) / "index.lock").touch(),
        "index.lock exists",
    ),
}


@pytest.mark.parametrize("name", SPOILS)
async def test_what_would_be_lost_keeps_the_worktree(repository: Repository, name: str) -> None:
    """Acceptance 13: dirty, unreachable, or in the middle of something: kept, and the reason named."""
    spoil, reason = SPOILS[name]
    workspace = await make(repository)
    spoil(workspace.path)
    before = sorted(path for path in workspace.path.rglob("*"))
    result = await closing.close(repository, workspace)
    assert not result.removed
    assert reason in result.reason
    assert sorted(path for path in workspace.path.rglob("*")) == before
    assert load_registrations(repository)[1].lock_reason is not None


async def test_a_tree_that_cannot_be_moved_stays_registered(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When git does not let go of the registration, the tree is back in its place, locked."""
    workspace = await make(repository)
    (git_dir_of(workspace.path) / "locked").chmod(0o600)
    monkeypatch.setattr(closing, "clear_missing", _refuse)
    result = await closing.close(repository, workspace)
    assert (result.removed, result.reason) == (False, "no")
    assert (workspace.path / "README.md").exists()
    assert load_registrations(repository)[1].path == workspace.path


def _refuse(repository: Repository, path: Path) -> None:
    del repository, path
    raise RepositoryError("no")


def test_trash_of_a_crashed_run_is_swept_without_following_links(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was moved aside goes, sealed folders too; what a link in it leads to stays, with its mode."""
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("x")
    root = worktree_root(repository.common_dir)
    leftover = root / closing.TRASH / "one-abc"
    (leftover / "sealed").mkdir(parents=True)
    (leftover / "sealed" / "file").write_text("x")
    (leftover / "node_modules").symlink_to(kept)
    (leftover / "sealed").chmod(0)
    delete, attempts = shutil.rmtree, []

    def refused_at_first(tree: Path, *, ignore_errors: bool) -> None:  # as for anyone but root
        attempts.append(tree)
        if len(attempts) > 1:
            delete(tree, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", refused_at_first)
    closing.sweep_trash(root)
    assert not root.exists()
    assert (kept / "file").exists()
    assert kept.stat().st_mode & 0o777 == 0o755


async def test_trash_may_wait_but_not_pile_up(repository: Repository) -> None:
    """A close without a sweep only moves the tree aside; too many of them are deleted, few are left."""
    root = worktree_root(repository.common_dir)
    for name in ("one", "two"):
        workspace = await make(repository, name)
        assert (await closing.close(repository, workspace, sweep=False)).removed
        assert not workspace.path.exists()
    trash = root / closing.TRASH
    closing.thin_trash(root, most=2)
    assert len(list(trash.iterdir())) == 2
    closing.thin_trash(root, most=1)
    assert list(trash.iterdir()) == []

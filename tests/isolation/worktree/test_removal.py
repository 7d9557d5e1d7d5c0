"""The end of a worktree: gone, or kept with the reason."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.errors import RepositoryError
from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository
from isolation.paths import worktree_root
from isolation.worktree import removal as closing
from isolation.worktree.removed import store
from tests.conftest import git
from tests.isolation.worktree.worktrees import commit, git_dir_of, make


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


def _half_logged_commit(path: Path) -> None:
    """Abandon a commit that the log of HEAD names only as what was left."""
    (git_dir_of(path) / "logs" / "HEAD").unlink()
    git(path, "config", "core.logAllRefUpdates", "false")
    _detached_commit(path)
    git(path, "config", "--unset", "core.logAllRefUpdates")
    git(path, "switch", "-q", "autopilot/one")


def _merging(path: Path) -> None:
    (Path(git(path, "rev-parse", "--absolute-git-dir").strip()) / "MERGE_HEAD").write_text("x")


def _hidden_edit(path: Path) -> None:
    git(path, "update-index", "--skip-worktree", "README.md")
    (path / "README.md").write_text("hidden")


def _unseen_edit(path: Path) -> None:
    git(path, "update-index", "--assume-unchanged", "README.md")
    (path / "README.md").write_text("hidden")


def _committed_repository(path: Path) -> None:
    git(path, "init", "-q", "-b", "main", "inner")
    commit(path / "inner")
    git(path, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    git(path, "commit", "-q", "-m", "gitlink")


def _stash(path: Path) -> None:
    (path / "README.md").write_text("stashed")
    git(path, "stash", "-q")


def _named_stash(path: Path) -> None:
    (path / "README.md").write_text("stashed")
    git(path, "stash", "push", "-q", "-m", "for later")


def _forgotten_submodule(path: Path) -> None:
    """Leave what a submodule had, including commits that exist nowhere else, in the git directory alone."""
    git(path, "init", "-q", "-b", "main", "../source")
    commit(path.parent / "source")
    git(path, "submodule", "--quiet", "add", str(path.parent / "source"), "sub")
    git(path, "commit", "-q", "-m", "submodule")
    commit(path / "sub", "only-here")
    git(path, "submodule", "--quiet", "deinit", "--force", "sub")


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
    "detached where its branch is": (
        lambda path: git(path, "checkout", "-q", "--detach"),
        "not on autopilot/one",
    ),
    "abandoned": (_abandoned_commit, "on no branch"),
    "abandoned, half logged": (_half_logged_commit, "on no branch"),
    "merging": (_merging, "middle of a merge"),
    "hidden": (_hidden_edit, "skip-worktree or assume-unchanged: README.md"),
    "unseen": (_unseen_edit, "skip-worktree or assume-unchanged: README.md"),
    "nested": (_committed_repository, "other git repositories: inner"),
    "stash": (_stash, "1 stash entry"),
    "named stash": (_named_stash, "1 stash entry"),
    "submodule": (_forgotten_submodule, "initialized submodules"),
    "ref": (_own_ref, "refs of its own"),
    "other branch": (lambda path: git(path, "switch", "-q", "-c", "other"), "on branch other"),
    "unreadable": (lambda path: (git_dir_of(path) / "index").write_text("x"), "git"),
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


async def test_a_folder_that_is_gone_leaves_no_registration(repository: Repository) -> None:
    """Acceptance 14: a deleted worktree is removed from git's list, so that its branch is free."""
    workspace = await make(repository)
    shutil.rmtree(workspace.path)
    assert (await closing.close(repository, workspace)).removed
    assert [entry.path for entry in load_registrations(repository)] == [repository.top]


async def test_what_is_others_does_not_keep_the_worktree(repository: Repository) -> None:
    """Acceptance 14: neither the user's own stash nor a submodule that was never filled holds a tree."""
    (repository.top / "README.md").write_text("the user's")
    git(repository.top, "stash", "-q")
    workspace = await make(repository)
    tip = git(workspace.path, "rev-parse", "HEAD").strip()
    git(workspace.path, "update-index", "--add", "--cacheinfo", f"160000,{tip},sub")
    (workspace.path / "sub").mkdir()
    git(workspace.path, "commit", "-q", "-m", "a submodule")
    result = await closing.close(repository, workspace)
    assert (result.removed, result.reason) == (True, "")


async def test_a_commit_that_nothing_reaches_keeps_a_worktree_without_logs(repository: Repository) -> None:
    """Acceptance 13: where git keeps no reflogs, HEAD itself is asked which branch or tag reaches it."""
    git(repository.top, "config", "core.logAllRefUpdates", "false")
    workspace = await make(repository)
    _detached_commit(workspace.path)
    result = closing.close_path(repository, workspace.path, None)
    assert not result.removed
    assert "no branch or tag reaches" in result.reason
    git(workspace.path, "tag", "kept")
    assert closing.close_path(repository, workspace.path, None).removed


async def test_a_link_in_place_of_the_trash_leads_nothing_away(
    repository: Repository, tmp_path: Path
) -> None:
    """No tree is moved through it, and nothing behind it is deleted."""
    workspace = await make(repository)
    root = worktree_root(repository.common_dir)
    (tmp_path / "elsewhere" / "theirs").mkdir(parents=True)
    (root / closing.TRASH).symlink_to(tmp_path / "elsewhere")
    result = await closing.close(repository, workspace)
    assert (result.removed, result.reason) == (False, f"{root / closing.TRASH} is a symbolic link")
    closing.sweep_trash(root)
    closing.thin_trash(repository, root, most=0)
    assert (workspace.path / "README.md").exists()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["theirs"]


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


def _refuse(repository: Repository, path: Path, *, into: Path | None = None) -> None:
    del repository, path, into
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


async def test_trash_may_wait_but_not_pile_up(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close without a sweep only moves the tree aside; too many of them are deleted, few are left."""
    monkeypatch.setattr(store, "LEAST_FREE", 1 << 80)  # on a full disk nothing is kept to be brought back
    root = worktree_root(repository.common_dir)
    for name in ("one", "two"):
        workspace = await make(repository, name)
        assert (await closing.close(repository, workspace, sweep=False)).removed
        assert not workspace.path.exists()
    trash = root / closing.TRASH
    assert (await closing.close(repository, await make(repository, "three"))).removed
    assert len(list(trash.iterdir())) == 2, "it takes the time for its own tree alone"
    closing.thin_trash(repository, root, most=2)
    assert len(list(trash.iterdir())) == 2
    closing.thin_trash(repository, root, most=1)
    assert list(trash.iterdir()) == []

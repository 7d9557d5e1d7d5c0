"""What a story left uncommitted: made a commit that no branch has, and put back uncommitted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.git.clones.uncommitted import (
    commit_uncommitted,
    forget_uncommitted,
    keep_uncommitted,
    put_back,
    ref_of,
    uncommitted_of,
)
from isolation.git.repository import Repository
from isolation.worktree.fresh import start_over
from tests.conftest import git


@pytest.fixture
def repository(make_repository: Callable[..., Path]) -> Repository:
    """Return a repository with files that a story may change."""
    files = {"changed": "1\n", "gone": "1\n", "both": "1\n2\n3\n", ".gitignore": "*.log\n"}
    return Repository.open(make_repository(files=files))


@pytest.fixture
def worktree(repository: Repository, tmp_path: Path) -> Path:
    """Return a worktree on the branch of story s."""
    git(repository.top, "worktree", "add", "-q", "-b", "autopilot/s", str(tmp_path / "s"))
    return tmp_path / "s"


def _work(worktree: Path) -> None:
    """Change, make, stage and remove files."""
    (worktree / "changed").write_text("2\n")
    (worktree / "made").write_text("new\n")
    (worktree / "staged").write_text("new\n")
    git(worktree, "add", "staged")
    (worktree / "gone").unlink()
    (worktree / "ignored.log").write_text("line\n")


def _state(worktree: Path) -> set[str]:
    """Return what is uncommitted; what is staged counts like what is new."""
    lines = git(worktree, "status", "--porcelain", "--untracked-files=all").splitlines()
    return {line.replace("A ", "??", 1) for line in lines}


def _left(repository: Repository, worktree: Path) -> str:
    commit = commit_uncommitted(repository, worktree, "s")
    assert keep_uncommitted(repository, "s", commit) == ref_of("s")
    return commit


def test_all_that_is_uncommitted_comes_back_uncommitted(repository: Repository, worktree: Path) -> None:
    """New, changed, staged and removed files are as they were; the worktree they come from is not touched."""
    _work(worktree)
    before, tip = _state(worktree), repository.branch_tip("autopilot/s")
    status = git(worktree, "status", "--porcelain")
    commit = _left(repository, worktree)
    assert git(worktree, "status", "--porcelain") == status
    assert repository.branch_tip("autopilot/s") == tip
    assert "ignored.log" not in git(repository.top, "ls-tree", "--name-only", commit)
    git(worktree, "reset", "-q", "--hard")
    (worktree / "made").unlink()
    assert "continues with" in put_back(repository, worktree, "s")
    assert _state(worktree) == before
    assert (worktree / "made").read_text() == "new\n"
    assert repository.branch_tip("autopilot/s") == tip
    assert uncommitted_of(repository, "s") == ""
    assert put_back(repository, worktree, "s") == ""


def test_a_clean_worktree_leaves_nothing(repository: Repository, worktree: Path) -> None:
    """Without a change there is no commit; files that git ignores are none."""
    (worktree / "ignored.log").write_text("line\n")
    assert commit_uncommitted(repository, worktree, "s") == ""


def test_it_is_put_onto_a_branch_that_went_on(repository: Repository, worktree: Path) -> None:
    """What the branch got meanwhile, on a newer base for example, stays."""
    (worktree / "both").write_text("1\n2\nthree\n")
    _left(repository, worktree)
    (worktree / "both").write_text("one\n2\n3\n")
    git(worktree, "commit", "-qam", "more")
    assert "continues with" in put_back(repository, worktree, "s")
    assert (worktree / "both").read_text() == "one\n2\nthree\n"


def test_what_does_not_fit_is_kept(repository: Repository, worktree: Path) -> None:
    """A conflict changes nothing in the worktree, and the work stays under its reference."""
    (worktree / "changed").write_text("2\n")
    commit = _left(repository, worktree)
    (worktree / "changed").write_text("3\n")
    git(worktree, "commit", "-qam", "another")
    assert "does not fit" in put_back(repository, worktree, "s")
    assert git(worktree, "status", "--porcelain") == ""
    assert (worktree / "changed").read_text() == "3\n"
    assert uncommitted_of(repository, "s") == commit


def test_a_worktree_with_changes_is_left_alone(repository: Repository, worktree: Path) -> None:
    """Work that is there already is not mixed with what was kept."""
    (worktree / "made").write_text("new\n")
    commit = _left(repository, worktree)
    assert "other changes" in put_back(repository, worktree, "s")
    assert uncommitted_of(repository, "s") == commit


def test_newer_work_replaces_nothing(repository: Repository, worktree: Path) -> None:
    """What was kept before has another name afterwards, and only what is named is forgotten."""
    (worktree / "made").write_text("1\n")
    first = _left(repository, worktree)
    (worktree / "made").write_text("2\n")
    second = _left(repository, worktree)
    assert uncommitted_of(repository, "s") == second
    kept = git(repository.top, "for-each-ref", "--format=%(objectname)", "refs/autopilot/replaced")
    assert kept.split() == [first]
    forget_uncommitted(repository, "s", first)
    assert uncommitted_of(repository, "s") == second


def test_a_story_that_starts_over_does_not_get_it(repository: Repository, worktree: Path) -> None:
    """It is kept with the old tip of the branch, as what is in a worktree of this machine."""
    (worktree / "made").write_text("1\n")
    commit = _left(repository, worktree)
    (worktree / "made").unlink()
    kept = start_over(repository, {"s": ("autopilot/s", worktree)})
    assert git(repository.top, "rev-parse", kept["s"]).strip() == commit
    assert uncommitted_of(repository, "s") == ""

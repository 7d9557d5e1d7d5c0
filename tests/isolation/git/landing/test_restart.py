"""A branch that starts again on a newer tip, and a merge that somebody resolves."""

from pathlib import Path

import pytest

from isolation.errors import WorkspaceError
from isolation.git.landing.resolution import begin_merge, keep, resolved, untracked
from isolation.git.landing.restart import as_one_merge, move_to, restarted
from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.git.landing.test_merges import branch


def tip(repo: Path, name: str) -> str:
    return git(repo, "rev-parse", name).strip()


def test_a_branch_starts_again_once_and_keeps_what_it_had(repo: Path, tmp_path: Path) -> None:
    """Markers where it conflicts; the worktree follows unless work is in the way, and becomes one merge."""
    repository = Repository.open(repo)
    base = branch(repo, "new", "main", {"x.txt": "new\n"})
    old = branch(repo, "story", "main", {"x.txt": "story\n", "y.txt": "story\n"})
    worktree = tmp_path / "worktree"
    git(repo, "worktree", "add", "-q", str(worktree), "story")
    commit, conflicts = restarted(repository, base, old, "again")
    assert conflicts == ("x.txt",)
    assert restarted(repository, base, old, "again")[0] == commit
    assert tip(repo, "story") == old, "nothing has moved"
    assert restarted(repository, "main", old, "again") == (old, ())

    (worktree / "x.txt").write_text("mine\n")
    with pytest.raises(WorkspaceError, match=r"changes in the way: x\.txt"):
        move_to(repository, worktree, "story", old=old, commit=commit, name="story/1")
    git(worktree, "checkout", "-q", "x.txt")
    for _ in range(2):
        move_to(repository, worktree, "story", old=old, commit=commit, name="story/1")
        assert (tip(repo, "story"), tip(repo, "refs/autopilot/old/story/1")) == (commit, old)
    assert "<<<<<<<" in (worktree / "x.txt").read_text()
    (worktree / "x.txt").write_text("both\n")
    git(worktree, "commit", "-q", "-a", "-m", "fixed")
    fixed = tip(repo, "story")
    parents = (base, old)
    made = as_one_merge(repository, "story", "m", parents=parents, start=commit, tip=fixed, keep_as="story/2")
    assert made == tip(repo, "story")
    assert git(repo, "rev-parse", "story^1", "story^2").split() == [base, old]
    assert tip(repo, "refs/autopilot/old/story/2") == fixed
    assert git(worktree, "status", "--porcelain") == ""
    assert made is not None
    again = as_one_merge(repository, "story", "m", parents=parents, start=old, tip=made, keep_as="story/3")
    assert again is None, "it does not follow the joining commit"

    fresh, _ = restarted(repository, base, old, "again", fresh=True)
    assert repository.trees((fresh,)) == repository.trees((base,))
    with pytest.raises(WorkspaceError, match="branch story moved"):
        move_to(repository, worktree, "story", old=old, commit=fresh, name="story/4")


def test_a_merge_in_progress_and_what_was_made_of_it(repo: Path, tmp_path: Path) -> None:
    """Git is in it; its files count, without those that hooks brought, and markers are named."""
    repository = Repository.open(repo)
    one = branch(repo, "one", "main", {"x.txt": "one\n"})
    two = branch(repo, "two", "main", {"x.txt": "two\n", "y.txt": "two\n"})
    worktree = tmp_path / "worktree"
    git(repo, "worktree", "add", "-q", "--detach", str(worktree), one)
    (worktree / "brought.txt").write_text("by a hook\n")
    before = untracked(repository, worktree)
    assert before == ("brought.txt",)
    begin_merge(repository, worktree, one, two, 1.0)
    assert git(worktree, "rev-parse", "MERGE_HEAD").strip() == two
    commit, markers = resolved(repository, worktree, (one, two), "m", 1.0, without=before)
    assert markers == ("x.txt",)
    (worktree / "x.txt").write_text("both\n")
    git(worktree, "commit", "-q", "-a", "-m", "by the agent")
    commit, markers = resolved(repository, worktree, (one, two), "m", 1.0, without=before)
    assert markers == ()
    assert git(repo, "rev-parse", f"{commit}^1", f"{commit}^2").split() == [one, two]
    assert git(repo, "show", f"{commit}:x.txt") == "both\n"
    assert "brought.txt" not in git(repo, "ls-tree", "-r", "--name-only", commit)
    keep(repository, "landing/two", commit)
    assert tip(repo, "refs/autopilot/resolved/landing/two") == commit

    git(worktree, "reset", "-q", "--hard", one)
    begin_merge(repository, worktree, one, two, 1.0, base="main")
    assert "<<<<<<<" in (worktree / "x.txt").read_text()
    assert (worktree / "y.txt").read_text() == "two\n"

"""Moving a branch that is checked out: by compare-and-swap, the user's files stay, a kill is survived."""

import os
from pathlib import Path

import pytest

from isolation.errors import TargetError
from isolation.git.landing.target import Move, has_ref, move, require_movable, settle
from isolation.git.repository import Repository
from tests.chaos.power import own_disk
from tests.conftest import begin_repository, git

KEPT = "refs/autopilot/landed/x"


def commit_beside(repo: Path, files: dict[str, str | None]) -> tuple[str, str]:
    """Return the tip of main, and a commit on top of it that no checkout has."""
    old = git(repo, "rev-parse", "HEAD").strip()
    git(repo, "worktree", "add", "-q", "--detach", "../beside")
    for name, text in files.items():
        path = repo.parent / "beside" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True) if text is None else path.write_text(text)
    git(repo.parent / "beside", "add", "-A")
    git(repo.parent / "beside", "commit", "-q", "-m", "new")
    new = git(repo.parent / "beside", "rev-parse", "HEAD").strip()
    git(repo, "worktree", "remove", "--force", "../beside")
    return old, new


def wanted(old: str, new: str) -> Move:
    return Move(branch="main", old=old, new=new, reason="test", recorded={KEPT: old})


@pytest.fixture
def repo(make_repository: object) -> Path:
    """Return a checkout of main with a few files."""
    files = {"a.txt": "a\n", "b.txt": "b\n", "old.txt": "old\n", ".gitignore": "*.log\n"}
    made: Path = make_repository("repo", files=files)  # type: ignore[operator]
    return made


def test_the_checkout_follows_and_other_changes_stay(repo: Path) -> None:
    """Added, changed and deleted files follow; what the user changed, staged or added is as it was."""
    old, new = commit_beside(repo, {"a.txt": "A\n", "new/c.txt": "c\n", "old.txt": None})
    (repo / "b.txt").write_text("mine\n")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    (repo / "free.txt").write_text("free\n")
    assert move(Repository.open(repo), wanted(old, new))
    assert git(repo, "rev-parse", "main", KEPT).split() == [new, old]
    assert (repo / "a.txt").read_text() == "A\n"
    assert (repo / "new" / "c.txt").read_text() == "c\n"
    assert not (repo / "old.txt").exists()
    lines = git(repo, "status", "--porcelain").splitlines()
    assert sorted(lines) == [" M b.txt", "?? free.txt", "A  staged.txt"]
    assert (repo / "b.txt").read_text() == "mine\n"


def test_a_power_cut_leaves_a_checkout_that_has_followed(tmp_path: Path) -> None:
    """What a landing has written is on the disk when it is done: git itself syncs neither files nor index."""
    with own_disk(tmp_path / "disk") as disk:
        repo = disk.place / "repo"
        begin_repository(repo, {"a.txt": "a\n", "old.txt": "old\n"})
        old, new = commit_beside(repo, {"a.txt": "A\n", "new/c.txt": "c\n", "old.txt": None})
        os.sync()
        assert move(Repository.open(repo), wanted(old, new))
        disk.cut()
        disk.boot()
        assert git(repo, "rev-parse", "main", KEPT).split() == [new, old]
        assert git(repo, "status", "--porcelain") == ""
        assert (repo / "a.txt").read_text() == "A\n"


@pytest.mark.parametrize(
    ("name", "text", "touched"),
    [
        ("a.txt", "mine\n", "a.txt"),
        ("new/c.txt", "untracked\n", "new/c.txt"),
        ("new", "a file where a folder comes\n", "new"),
        ("x.log", "ignored\n", "x.log"),
    ],
)
def test_a_file_of_the_users_in_the_way_is_named(repo: Path, name: str, text: str, touched: str) -> None:
    """Nothing moves, and the file is byte for byte as it was."""
    old, new = commit_beside(repo, {"a.txt": "A\n", "new/c.txt": "c\n"})
    if name == "x.log":
        git(repo, "update-ref", "refs/heads/side", new)
        git(repo, "worktree", "add", "-q", "../side", "side")
        (repo.parent / "side" / "x.log").write_text("tracked after all\n")
        git(repo.parent / "side", "add", "-f", "x.log")
        git(repo.parent / "side", "commit", "-q", "-m", "log")
        new = git(repo.parent / "side", "rev-parse", "HEAD").strip()
    (repo / name).parent.mkdir(exist_ok=True)
    (repo / name).write_text(text)
    with pytest.raises(TargetError, match=touched):
        move(Repository.open(repo), wanted(old, new))
    assert git(repo, "rev-parse", "main").strip() == old
    assert (repo / name).read_text() == text
    assert not has_ref(Repository.open(repo), KEPT)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_change_that_is_hidden_from_git_is_in_the_way(repo: Path, flag: str) -> None:
    """What git was asked not to look at is the user's all the same."""
    old, new = commit_beside(repo, {"a.txt": "A\n"})
    git(repo, "update-index", flag, "a.txt")
    (repo / "a.txt").write_text("hidden\n")
    with pytest.raises(TargetError, match=r"a\.txt"):
        move(Repository.open(repo), wanted(old, new))
    assert (repo / "a.txt").read_text() == "hidden\n"


@pytest.mark.parametrize(
    ("mark", "words"),
    [("MERGE_HEAD", "a merge"), ("rebase-merge", "a rebase"), ("BISECT_LOG", "a bisection")],
)
def test_a_checkout_in_the_middle_of_something_is_refused(repo: Path, mark: str, words: str) -> None:
    """A merge, a rebase or a bisection is the user's to finish."""
    path = repo / ".git" / mark
    path.mkdir() if mark.startswith("rebase") else path.write_text(git(repo, "rev-parse", "HEAD"))
    with pytest.raises(TargetError, match=words):
        require_movable(Repository.open(repo), "main", {})


def test_who_was_faster_is_not_overwritten(repo: Path) -> None:
    """A branch that has moved stays where it is, and nothing is recorded."""
    old, new = commit_beside(repo, {"a.txt": "A\n"})
    git(repo, "commit", "-q", "--allow-empty", "-m", "somebody else")
    other = git(repo, "rev-parse", "main").strip()
    assert not move(Repository.open(repo), wanted(old, new))
    assert git(repo, "rev-parse", "main").strip() == other
    assert not has_ref(Repository.open(repo), KEPT)
    assert git(repo, "status", "--porcelain") == ""


def test_a_killed_move_is_completed(repo: Path) -> None:
    """The index is at the old commit; some files are new, one is gone, one is written in part."""
    old, new = commit_beside(
        repo, {"a.txt": "A long text\n", "c.txt": "c\n", "old.txt": None, "b.txt": "B\n"}
    )
    (repo / "mine.txt").write_text("mine\n")
    git(repo, "update-ref", "refs/heads/main", new, old)
    (repo / "c.txt").write_text("c\n")
    (repo / "a.txt").write_text("A lo")
    (repo / "old.txt").unlink()
    settle(Repository.open(repo), "main", old, new)
    assert git(repo, "status", "--porcelain").split() == ["??", "mine.txt"]
    assert (repo / "a.txt").read_text() == "A long text\n"
    settle(Repository.open(repo), "main", old, new)
    assert git(repo, "status", "--porcelain").split() == ["??", "mine.txt"]


def test_a_users_change_after_a_killed_move_is_not_overwritten(repo: Path) -> None:
    """What is neither the old nor the new content stops the completion."""
    old, new = commit_beside(repo, {"a.txt": "A long text\n"})
    git(repo, "update-ref", "refs/heads/main", new, old)
    (repo / "a.txt").write_text("mine\n")
    with pytest.raises(TargetError, match="could not follow"):
        settle(Repository.open(repo), "main", old, new)
    assert (repo / "a.txt").read_text() == "mine\n"

"""What stands in the way of a checkpoint is named, and left as it is."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from isolation.errors import GitCommandError, WorkspaceError
from isolation.git import commits
from isolation.git import repository as repositories
from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.worktree.worktrees import checkpoint_of_main, commit


@pytest.mark.parametrize("obstacle", ["blobs", "trees", "branch"])
def test_a_checkpoint_that_git_cannot_make_is_an_error(
    repository: Repository, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance 72: content, tree or branch cannot be written; that is not taken for nothing to commit.

    A lock that a dead git left on the branch is named and never deleted; the hint says what to do about it.
    """
    impatient = tuple(option.replace("=5000", "=50") for option in repositories._OPTIONS)
    assert impatient != repositories._OPTIONS
    monkeypatch.setattr(repositories, "_OPTIONS", impatient)
    top, before = repository.top, repository.head()
    (top / "new").write_text("something new\n" if obstacle == "blobs" else "hello\n")  # git has this already
    objects = top / ".git" / "objects"
    full = [objects / f"{number:02x}" for number in range(256)]
    full = [folder for folder in full if not folder.exists()] + [objects / "pack" / "x"]
    if obstacle == "branch":
        full = [top / ".git" / "refs" / "heads" / "main.lock"]
    for place in full:
        place.touch()
    with pytest.raises(GitCommandError) as refused:
        checkpoint_of_main(repository, "work", 5)
    if obstacle == "branch":
        assert "main.lock" in refused.value.message
        assert "remove the lock file it names" in refused.value.hint
    assert (repository.head(), (top / "new").exists()) == (before, True)
    for place in full:
        place.unlink()
    assert "new" in git(top, "ls-tree", "--name-only", checkpoint_of_main(repository, "work", 5)).split()


def test_a_foreign_commit_in_the_middle_of_a_checkpoint_is_noticed(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that came between the look and ours was not there to be judged."""
    stage = commits._stage_all

    def crowded(opened: Repository, cwd: Path, dirty: Sequence[str]) -> None:
        git(cwd, "commit", "-q", "--allow-empty", "-m", "theirs")
        stage(opened, cwd, dirty)

    monkeypatch.setattr(commits, "_stage_all", crowded)
    (repository.top / "new").write_text("x")
    with pytest.raises(WorkspaceError, match="branch main moved from"):
        checkpoint_of_main(repository, "work", 5)


def _picking(repository: Repository, *picks: str) -> Path:
    """Begin to pick commits of another branch, the first of which conflicts; gives the mark of it."""
    top = repository.top
    git(top, "switch", "-q", "-c", "other")
    commit(top, "README.md", "theirs\n")
    commit(top, "more", "theirs\n")
    git(top, "switch", "-q", "main")
    commit(top, "README.md", "ours\n")
    subprocess.run(["git", "cherry-pick", *picks], cwd=top, check=False, capture_output=True)
    return top / ".git" / "CHERRY_PICK_HEAD"


def test_a_pick_in_conflict_is_refused_and_stays_what_it_is(repository: Repository) -> None:
    """Neither the conflict nor git's knowledge of what was being picked is lost."""
    mark = _picking(repository, "other~1")
    picked, before = mark.read_text(), repository.head()
    with pytest.raises(WorkspaceError, match="middle of a cherry-pick"):
        checkpoint_of_main(repository, "work", 5)
    assert (mark.read_text(), repository.head()) == (picked, before)


def test_a_pick_that_is_not_the_last_one_is_refused(repository: Repository) -> None:
    """The conflict is resolved, but a further pick is to come: that is not for a checkpoint to end."""
    mark = _picking(repository, "other~1", "other")
    git(repository.top, "add", "README.md")
    with pytest.raises(WorkspaceError, match="middle of a"):
        checkpoint_of_main(repository, "work", 5)
    assert mark.exists()


def test_a_pick_that_is_over_but_for_its_mark_is_committed(repository: Repository) -> None:
    """Git could not delete the mark from within a session; nothing else is left of it."""
    mark = _picking(repository, "other~1")
    git(repository.top, "add", "README.md")
    assert checkpoint_of_main(repository, "work", 5) == repository.head()
    assert not mark.exists()


def test_conflicts_without_a_merge_are_refused(repository: Repository) -> None:
    """A stash that does not apply leaves conflict markers and no sign of an operation."""
    top = repository.top
    (top / "README.md").write_text("stashed\n")
    git(top, "stash", "-q")
    before = commit(top, "README.md", "ours\n")
    subprocess.run(["git", "stash", "pop"], cwd=top, check=False, capture_output=True)
    with pytest.raises(WorkspaceError, match=r"unresolved conflicts: README\.md"):
        checkpoint_of_main(repository, "work", 5)
    assert repository.head() == before


@pytest.mark.parametrize("broken", [b"nonsense", b"DIRC" + b"\0" * 60, b""])
def test_an_index_that_git_cannot_read_is_made_again(repository: Repository, broken: bytes) -> None:
    """The files are all there; what a session wrote over its index must not cost its work."""
    top = repository.top
    before = git(top, "ls-tree", "-r", "--name-only", "HEAD").split()
    (top / "new").write_text("new\n")
    (top / ".git" / "index").write_bytes(broken)
    found = checkpoint_of_main(repository, "work", 5)
    assert git(top, "ls-tree", "-r", "--name-only", found).split() == sorted([*before, "new"])
    assert git(top, "status", "--porcelain") == ""

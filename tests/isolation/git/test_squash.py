"""A branch as one commit: repeatable after a crash, and never at the cost of somebody's commits."""

from pathlib import Path

import pytest

from isolation.git.repository import Repository
from isolation.git.squash import KEPT, messages, squash
from tests.conftest import git


@pytest.fixture
def ids(repo: Path) -> tuple[str, str]:
    """Return the base and the tip of a branch with two commits that is checked out nowhere."""
    base = git(repo, "rev-parse", "HEAD").strip()
    git(repo, "checkout", "-q", "-b", "work")
    for name in ("one", "two"):
        (repo / name).write_text(name)
        git(repo, "add", name)
        git(repo, "commit", "-q", "-m", f"Add {name}")
    git(repo, "checkout", "-q", "main")
    return base, git(repo, "rev-parse", "work").strip()


def test_it_can_be_repeated_and_keeps_the_original(repo: Path, ids: tuple[str, str]) -> None:
    """The same branch gives the same commit, also when the run was killed just after it moved."""
    base, tip = ids
    repository = Repository.open(repo)
    assert messages(repository, base, tip) == ("Add one", "Add two")
    made = [squash(repository, "work", "Both", base=base, tip=tip, keep_as="r/work") for _ in range(2)]
    assert made == [git(repo, "rev-parse", "work").strip()] * 2
    assert git(repo, "rev-list", "--count", f"{base}..work").strip() == "1"
    assert git(repo, "rev-parse", f"{KEPT}/r/work").strip() == tip
    assert git(repo, "diff", tip, "work") == ""


def test_a_branch_that_moved_or_has_merges_stays(repo: Path, ids: tuple[str, str]) -> None:
    """A commit that came since would be lost, and so would the origin of what was merged."""
    base, tip = ids
    repository = Repository.open(repo)
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "three").write_text("three")
    git(repo, "add", "three")
    git(repo, "commit", "-q", "-m", "Add three")
    git(repo, "merge", "-q", "--no-edit", "work")
    merged = git(repo, "rev-parse", "other").strip()
    assert squash(repository, "other", "All", base=base, tip=merged, keep_as="r/other") is None
    git(repo, "branch", "-f", "work", merged)
    assert squash(repository, "work", "Both", base=base, tip=tip, keep_as="r/work") is None
    assert git(repo, "rev-parse", "work", "other").split() == [merged, merged]
    assert git(repo, "for-each-ref", KEPT) == ""

"""A story's branch moves and goes only from where it was last seen."""

from pathlib import Path

import pytest

from isolation.errors import GitCommandError
from isolation.git import branches
from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.worktree.worktrees import commit


@pytest.fixture
def repository(repo: Path) -> Repository:
    git(repo, "branch", "autopilot/one")
    return Repository.open(repo)


def test_a_branch_that_was_moved_meanwhile_is_neither_moved_nor_deleted(repository: Repository) -> None:
    """Another process committed to it between the look and the act: that commit stays its tip."""
    seen = repository.resolve("autopilot/one")
    git(repository.top, "switch", "-q", "autopilot/one")
    theirs = commit(repository.top, "theirs")
    git(repository.top, "switch", "-q", "main")
    ours = commit(repository.top, "ours")
    with pytest.raises(GitCommandError):
        branches.move_on(repository, "autopilot/one", seen, ours)
    branches.delete_branch(repository, "autopilot/one", seen)
    assert repository.branch_tip("autopilot/one") == theirs


def test_a_branch_with_commits_of_its_own_is_not_taken_to_the_base(repository: Repository) -> None:
    """Only a branch without work follows the base."""
    first = repository.resolve("HEAD")
    base = commit(repository.top, "base")
    assert branches.fast_forward(repository, "autopilot/one", first, base) == base
    assert repository.branch_tip("autopilot/one") == base
    git(repository.top, "switch", "-q", "autopilot/one")
    tip = commit(repository.top, "work")
    git(repository.top, "switch", "-q", "main")
    further = commit(repository.top, "further")
    assert branches.fast_forward(repository, "autopilot/one", tip, further) == tip
    assert repository.branch_tip("autopilot/one") == tip

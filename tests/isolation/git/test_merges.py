"""The merges of several dependencies that the program makes."""

import os
from pathlib import Path

import pytest

from isolation.errors import MergeConflictError, RepositoryError
from isolation.git import commits
from isolation.git.checkout import read_status
from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.worktree.worktrees import commit


def test_several_parents_are_merged_without_a_checkout(repository: Repository) -> None:
    """Acceptance 24: the start is the merge of the tips, the same for the same tips."""
    top = repository.top
    base = repository.resolve("HEAD")
    tips = []
    for name in "abc":
        git(top, "switch", "-q", "-c", f"story-{name}", base)
        tips.append(commit(top, name, name))
    git(top, "switch", "-q", "main")
    merged = commits.merge_parents(repository, [*tips, base], "Merge")
    assert all(repository.is_ancestor(tip, merged) for tip in tips)
    assert sorted(repository.changed_paths(base, merged)) == ["a", "b", "c"]
    assert commits.merge_parents(repository, [*tips, base], "Merge") == merged
    assert repository.head() == base
    assert read_status(repository, top).dirty == ()


def test_parents_that_others_contain_are_left_out(repository: Repository) -> None:
    """One tip that has all the others in its history is given back as it is."""
    base = repository.resolve("HEAD")
    tip = commit(repository.top, "a", "a")
    assert commits.merge_parents(repository, [base, tip, base], "Merge") == tip


def test_a_merge_conflict_names_the_files(repository: Repository) -> None:
    """Acceptance 24: tips that do not merge fail with the paths."""
    top, base = repository.top, repository.resolve("HEAD")
    tips = []
    for name in "ab":
        git(top, "switch", "-q", "-c", f"story-{name}", base)
        (top / "ünï code").write_text(name)
        tips.append(commit(top, "README.md", name))
    with pytest.raises(MergeConflictError) as caught:
        commits.merge_parents(repository, tips, "Merge")
    assert caught.value.paths == ("README.md", "ünï code")
    assert caught.value.message == "story-a and story-b do not merge: conflicts in README.md, ünï code"
    git(top, "branch", "-D", "story-a")
    with pytest.raises(MergeConflictError, match=f"^{tips[0][:10]} and story-b do not merge"):
        commits.merge_parents(repository, tips, "Merge")


def test_a_git_that_cannot_merge_trees_is_named(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several parents with a git before 2.38 say which version is needed."""
    top, base = repository.top, repository.resolve("HEAD")
    tips = []
    for name in "ab":
        git(top, "switch", "-q", "-c", f"story-{name}", base)
        tips.append(commit(top, name, name))
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\ncase "$*" in *merge-tree*) exit 129;; esac\nexec /usr/bin/git "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(RepositoryError, match=r"2\.38"):
        commits.merge_parents(repository, tips, "Merge")

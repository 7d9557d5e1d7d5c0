"""Refs that are read without a process are those that git reads; whatever is unusual is left to git."""

import os
from pathlib import Path

import pytest

from isolation.git.branches import require_creatable
from isolation.git.direct.refs import NO_REF, has_commit, has_refs_below, read_head, read_ref
from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.worktree.worktrees import commit


@pytest.mark.parametrize("packed", [False, True])
def test_a_ref_is_what_git_says(repo: Path, *, packed: bool) -> None:
    """Loose and packed, at the top and in folders; a folder of refs is no ref."""
    for name in ("plain", "in/a/folder"):
        git(repo, "branch", name)
    if packed:
        git(repo, "pack-refs", "--all", "--prune")
        git(repo, "gc", "-q")
    repository = Repository.open(repo)
    common, tip = repository.common_dir, git(repo, "rev-parse", "HEAD").strip()
    for name in ("main", "plain", "in/a/folder"):
        assert read_ref(common, f"refs/heads/{name}") == repository.branch_tip(name) == tip
    for name in ("in", "in/a", "none", "plain/below", "lain"):
        assert read_ref(common, f"refs/heads/{name}") == NO_REF
        assert repository.branch_tip(name) is None
    assert [has_refs_below(common, f"refs/heads/{name}") for name in ("in/a", "none")] == [True, False]
    assert read_head(common, repo) == repository.head() == tip
    assert has_commit(common, tip) is not packed
    require_creatable(repository, "in/a/new")


def test_a_new_commit_is_seen_at_once(repo: Path) -> None:
    """Nothing of a ref is remembered: branches move between two looks."""
    repository = Repository.open(repo)
    before = repository.head()
    after = commit(repo, "more")
    assert before != after
    assert repository.head() == repository.branch_tip("main") == after
    git(repo, "checkout", "-q", "--detach", str(before))
    assert repository.head() == before


def test_what_a_session_may_plant_is_left_to_git(repo: Path) -> None:
    """Links, symbolic refs, other objects and ids of nothing: git decides, as it did before."""
    repository = Repository.open(repo)
    common, heads = repository.common_dir, repository.common_dir / "refs" / "heads"
    blob = git(repo, "hash-object", "-w", "--stdin", "--path=x").strip()
    os.mkfifo(heads / "pipe")
    (heads / "link").symlink_to(heads / "main")
    (heads / "symbolic").write_text("ref: refs/heads/main\n")
    (heads / "blob").write_text(f"{blob}\n")
    (heads / "nothing").write_text(f"{'1' * 40}\n")
    for name in ("pipe", "link", "symbolic"):
        assert read_ref(common, f"refs/heads/{name}") is None
    (heads / "pipe").unlink()
    assert repository.branch_tip("link") == repository.branch_tip("symbolic") == repository.head()
    assert repository.branch_tip("blob") is None
    assert repository.branch_tip("nothing") is None

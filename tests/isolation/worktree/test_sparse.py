"""A sparse worktree whose first checkout was killed is completed, and stays sparse."""

from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from isolation.errors import WorkspaceError
from isolation.git.repository import Repository
from isolation.worktree.opening import create_or_attach
from isolation.worktree.sparse import make_sparse, require_possible
from tests.conftest import git
from tests.isolation.worktree.worktrees import commit, git_dir_of, wanted


def _files(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()} - {".git"}


@pytest.mark.parametrize("changed", [False, True])
async def test_a_killed_checkout_is_completed_without_the_rest(
    repository: Repository, *, changed: bool
) -> None:
    """Neither a new checkout nor one of missing files alone brings what the tree leaves out."""
    for name in ("in/side/f", "in/side/g", "out/f"):
        (repository.top / name).parent.mkdir(parents=True, exist_ok=True)
        commit(repository.top, name, "0123456789")
    request = replace(wanted(repository), sparse=("in/side/f",))  # a file stands for its folder
    limiter = trio.CapacityLimiter(1)
    tree = (await create_or_attach(repository, request, limiter)).path
    assert _files(tree) == {"README.md", "in/side/f", "in/side/g"}
    (git_dir_of(tree) / "index").unlink()
    (tree / "in/side/f").unlink()
    (tree / "in/side/g").write_text("mine" if changed else "01234")
    await create_or_attach(repository, request, limiter)
    assert _files(tree) == {"README.md", "in/side/f", "in/side/g"}
    assert (tree / "in/side/g").read_text() == ("mine" if changed else "0123456789")
    assert git(tree, "status", "--porcelain") == (" M in/side/g\n" if changed else "")
    assert git(repository.top, "config", "--get", "extensions.worktreeConfig") == "true\n"
    assert "out/f" in git(repository.top, "ls-files")


def test_an_old_git_is_refused(repository: Repository) -> None:
    """Before anything is written."""
    old = replace(repository, version=(2, 31, 0))
    with pytest.raises(WorkspaceError, match=r"need git 2\.36 or newer, and this is git 2\.31\.0"):
        require_possible(old)
    with pytest.raises(WorkspaceError, match=r"2\.36"):
        make_sparse(old, repository.top, ("x",), "HEAD")
    assert not (repository.common_dir / "info" / "sparse-checkout").exists()

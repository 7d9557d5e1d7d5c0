"""A worktree counts as filled only when every file is whole."""

from pathlib import Path

import pytest

from isolation.errors import WorkspaceError
from isolation.repository import Repository
from tests.conftest import git
from tests.isolation.worktrees import branches, commit, hook, make


@pytest.fixture
def repository(repo: Path) -> Repository:
    return Repository.open(repo)


async def test_a_file_that_a_full_disk_cut_off_is_not_taken_for_whole(repository: Repository) -> None:
    """Acceptance 72: a checkout that failed and left a file short is taken back, never worked in.

    The hook leaves what a disk that ran full leaves: a short file that the index has as whole.
    """
    commit(repository.top, "big", "0123456789" * 1000)
    hook(repository.top, "printf 01234 > big; exit 1")
    with pytest.raises(WorkspaceError, match="big missing or cut off"):
        await make(repository, "one")
    assert branches(repository.top) == {"main"}


async def test_a_failing_hook_alone_is_no_reason_to_refuse_a_tree(repository: Repository) -> None:
    """What a hook changes in the files, or a difference in line endings, is no torn write."""
    commit(repository.top, "page", "one\n")
    (repository.top / ".gitattributes").write_text("page text eol=crlf\n")
    git(repository.top, "config", "core.autocrlf", "true")
    commit(repository.top, "other", "two\n")
    hook(repository.top, "printf 'another page' > page; exit 1")
    workspace = await make(repository, "one")
    assert (workspace.path / "page").read_text() == "another page"

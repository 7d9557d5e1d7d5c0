"""Finding the repository and the program's places, without a git process."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation import paths as layout
from isolation.errors import RepositoryError, WorkspaceError
from tests.conftest import git


def test_a_checkout_is_found_from_any_folder_inside(repo: Path) -> None:
    """A folder deep inside leads to the top and to the common git directory."""
    deep = repo / "a" / "b"
    deep.mkdir(parents=True)
    found = layout.find_repository(deep)
    assert (found.top, found.common_dir) == (repo, repo / ".git")


def test_a_linked_worktree_and_a_symlink_share_one_common_directory(repo: Path, tmp_path: Path) -> None:
    """Acceptance 69: the same repository by another way has the same common directory."""
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", "--detach", str(linked))
    (tmp_path / "link").symlink_to(repo)
    assert layout.find_repository(linked).common_dir == repo / ".git"
    assert layout.find_repository(linked).top == linked
    assert layout.find_repository(tmp_path / "link").common_dir == repo / ".git"


def test_a_symlinked_git_directory_is_resolved(repo: Path, tmp_path: Path) -> None:
    """A `.git` that is a link gives the real directory."""
    (repo / ".git").rename(tmp_path / "store")
    (repo / ".git").symlink_to(tmp_path / "store")
    assert layout.find_repository(repo).common_dir == tmp_path / "store"


def test_a_bare_repository_is_its_own_top(repo: Path, tmp_path: Path) -> None:
    """A bare repository given directly is found, and its worktrees lie beside it."""
    bare = tmp_path / "store.git"
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(bare))
    found = layout.find_repository(bare)
    assert (found.top, found.common_dir) == (bare, bare)
    assert layout.main_checkout(bare) is None
    assert found.main_checkout is None
    assert layout.worktree_root(bare) == tmp_path / "store.git.worktrees"


def test_a_checkout_is_found_that_its_git_directory_does_not_name(repo: Path, tmp_path: Path) -> None:
    """From the checkout it is known; from a linked worktree of it, it is unknown."""
    git(repo, "init", "-q", "--separate-git-dir", str(tmp_path / "store"))
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert layout.find_repository(repo).main_checkout == repo
    linked = layout.find_repository(tmp_path / "linked")
    assert (linked.common_dir, linked.main_checkout) == (tmp_path / "store", None)


def test_inside_the_git_directory_the_checkout_is_meant(repo: Path) -> None:
    """Started from `.git/hooks`, the checkout around it is the one."""
    assert layout.find_repository(repo / ".git" / "hooks").top == repo


def test_a_submodule_is_a_repository_of_its_own(repo: Path) -> None:
    """A submodule's worktrees lie beside its checkout, not inside the other's `.git`."""
    git(repo, "submodule", "--quiet", "add", str(repo), "sub")
    found = layout.find_repository(repo / "sub")
    assert found.common_dir == repo / ".git" / "modules" / "sub"
    assert layout.worktree_root(found.common_dir) == repo / "sub.worktrees"


def test_the_branch_of_a_checkout_is_read_without_git(repo: Path) -> None:
    """On a branch, also with a slash, in a linked worktree, detached, and without a checkout."""
    assert layout.current_branch(repo) == "main"
    git(repo, "worktree", "add", "-q", "-b", "team/topic", "../linked")
    assert layout.current_branch(repo.parent / "linked") == "team/topic"
    git(repo, "checkout", "-q", "--detach")
    assert layout.current_branch(repo) == ""
    assert layout.current_branch(repo.parent / "nowhere") == ""


def test_each_repository_has_its_own_hash(repo: Path, make_repository: Callable[..., Path]) -> None:
    """Short, the same every time, and another one for another repository."""
    first, second = (layout.repository_hash(top / ".git") for top in (repo, make_repository("second")))
    assert len(first) == 16
    assert first == layout.repository_hash(repo / ".git") != second


def test_no_repository_is_said_with_a_hint(tmp_path: Path) -> None:
    """Outside of any repository the error says what to do."""
    with pytest.raises(RepositoryError) as caught:
        layout.find_repository(tmp_path)
    assert "git init" in caught.value.hint


def test_a_broken_git_file_is_named(tmp_path: Path) -> None:
    """A `.git` file that leads nowhere is an error about that file."""
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all\n")
    with pytest.raises(RepositoryError, match="does not lead to a git directory"):
        layout.find_repository(tmp_path)


def test_repositories_of_one_name_never_share_a_path(
    make_repository: Callable[..., Path], tmp_path: Path
) -> None:
    """Acceptance 10: the same folder name twice gives two roots, with and without a configured one."""
    one, two = make_repository("x/app"), make_repository("y/app")
    for configured in (None, tmp_path / "roots"):
        roots = {layout.worktree_root(each / ".git", configured) for each in (one, two)}
        assert len(roots) == 2
    assert layout.worktree_root(one / ".git") == tmp_path / "x" / "app.worktrees"


@pytest.mark.parametrize("name", ["../x", "..", ".", "", "-rf", "a\nb", "x" * 300, ".git", "a/b", "a\0b"])
def test_ids_that_escape_are_refused(name: str, tmp_path: Path) -> None:
    """Acceptance 11: an id that cannot name one folder is refused before any path is made of it."""
    with pytest.raises(WorkspaceError):
        layout.worktree_path(tmp_path, name)
    with pytest.raises(WorkspaceError):
        layout.story_dir(tmp_path, "run", name)


def test_status_loads_neither_trio_nor_gitpython() -> None:
    """Layout and lease come without the expensive imports, and so does the door to git."""
    code = (
        "import sys, isolation.paths, isolation.files.lease, isolation.git.repository;"
        "sys.exit(any(name in sys.modules for name in ('trio', 'git', 'asyncio')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

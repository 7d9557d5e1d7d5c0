"""What no commit holds is out of the way and comes back, whatever happens in between."""

from pathlib import Path

import pytest

from isolation.git.repository import Repository
from isolation.worktree.aside import ASIDE, Aside, put_back, remember_brought, remember_left, set_aside
from tests.conftest import git


@pytest.fixture
def tree(repository: Repository) -> Path:
    """Return a worktree with files that git ignores, an empty folder, and files that were brought."""
    tree = repository.top.with_name("trees") / "a"
    git(repository.top, "worktree", "add", "-q", "--detach", str(tree))
    (tree / ".gitignore").write_text("ignored\nconf/\nlib/\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "ignore")
    for name in ("ignored", "conf/brought", "conf/made", "lib/x/y", "cache/x"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    (tree / "empty").mkdir()
    (tree / "link").symlink_to("ignored")
    remember_brought(tree, {"conf/brought"})
    return tree


def _aside(repository: Repository, tree: Path) -> Aside:
    return set_aside(repository, tree, shared=("link",), stays=lambda path: path.startswith("cache/"))


def _files(tree: Path) -> set[str]:
    return {
        str(path.relative_to(tree)) for path in tree.rglob("*") if path.name not in {".git", ".gitignore"}
    }


def test_all_that_was_made_moves_and_comes_back(repository: Repository, tree: Path) -> None:
    """Files that were brought, shared folders and caches stay; a folder is moved as a whole if it can be."""
    before = _files(tree)
    found = _aside(repository, tree)
    assert (set(found.names), found.stuck) == ({"ignored", "conf/made", "lib/", "empty/"}, ())
    assert _files(tree) == {"README.md", "conf", "conf/brought", "cache", "cache/x", "link"}
    assert put_back(tree) == ()
    assert _files(tree) == before
    assert not (tree.parent / ASIDE).exists()


def test_what_verify_commands_left_moves_but_is_not_from_sessions(repository: Repository, tree: Path) -> None:
    """It is out of the way of the next ones, too; what sessions made before or since is told apart."""
    first = _aside(repository, tree)
    assert first.by_sessions == first.names
    (tree / "lib").mkdir()  # gives way to what was there
    (tree / "built").mkdir()
    assert put_back(tree) == ()
    remember_left(repository, tree, first, shared=("link",), stays=lambda path: path.startswith("cache/"))
    (tree / "later").mkdir()
    second = _aside(repository, tree)
    assert set(second.names) == {*first.names, "built/", "later/"}
    assert set(second.by_sessions) == {*first.names, "later/"}


def test_what_was_made_in_its_place_gives_way(repository: Repository, tree: Path) -> None:
    """A command may build the same file or folder again, or remove the folder around it: that is not kept."""
    before = _files(tree)
    _aside(repository, tree)
    (tree / "lib/other").mkdir(parents=True)
    (tree / "ignored").mkdir()
    (tree / "conf/brought").unlink()
    (tree / "conf").rmdir()
    assert put_back(tree) == ()
    assert _files(tree) == before - {"conf/brought"}
    assert (tree / "lib/x/y").read_text() == "lib/x/y"


def test_a_killed_run_loses_nothing_and_goes_on(repository: Repository, tree: Path) -> None:
    """What a command made since stays with it, what was not moved yet is moved, and all comes back."""
    before = _files(tree)
    found = _aside(repository, tree)
    aside = tree.parent / ASIDE / "a"
    (aside / str(found.names.index("ignored"))).rename(tree / "ignored")  # as if killed before this one
    (tree / "lib").mkdir()
    (tree / "made-by-verify").write_text("x")
    again = _aside(repository, tree)
    assert set(again.names) == set(found.names)
    assert _files(tree) >= {"lib", "made-by-verify"}
    assert put_back(tree) == ()
    assert _files(tree) == before | {"made-by-verify"}


def test_nothing_is_moved_out_of_the_tree(repository: Repository, tree: Path, tmp_path: Path) -> None:
    """A folder that became a link to elsewhere gets nothing; what is left is named."""
    _aside(repository, tree)
    (tree / "conf/brought").unlink()
    (tree / "conf").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tree / "conf").symlink_to(tmp_path / "elsewhere")
    (left,) = put_back(tree)
    assert Path(left).read_text() == "conf/made"
    assert list((tmp_path / "elsewhere").iterdir()) == []

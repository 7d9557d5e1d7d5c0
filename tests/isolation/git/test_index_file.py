"""Git's index, read without git: whether all in it is plain."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolation.git.direct.index_file import all_there, is_plain
from isolation.git.repository import Repository
from tests.conftest import git


def index_of(top: Path) -> bytes:
    return (top / ".git" / "index").read_bytes()


def filled(top: Path) -> Path:
    """Fill a repository with files of all plain kinds, some with long names."""
    for name in ("a", "folder/b", "other/c", f"folder/{'n' * 200}"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("a")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "more")
    blob = git(top, "rev-parse", "HEAD:a").strip()
    # No file can have such a name here; in an index its length does not fit into its field.
    git(top, "update-index", "--add", "--cacheinfo", f"100644,{blob},{'/'.join(['d' * 120] * 40)}")
    return top


@pytest.mark.parametrize("version", [2, 4])
def test_files_and_links_are_plain(repository: Repository, version: int) -> None:
    """In each format of the index, with names of any length."""
    top = filled(repository.top)
    git(top, "update-index", "--index-version", str(version))
    assert is_plain(index_of(top))


def _submodule(top: Path) -> None:
    git(top, "init", "-q", "inner")
    git(top / "inner", "commit", "-q", "--allow-empty", "-m", "inner")
    git(top, "-c", "advice.addEmbeddedRepo=false", "add", "inner")


HIDING: dict[str, Callable[[Path], object]] = {
    "assume-unchanged": lambda top: git(top, "update-index", "--assume-unchanged", "a"),
    "skip-worktree": lambda top: git(top, "update-index", "--skip-worktree", "folder/b"),
    "intent to add": lambda top: ((top / "new").write_text("new"), git(top, "add", "-N", "new")),
    "submodule": _submodule,
    "sparse": lambda top: git(top, "sparse-checkout", "set", "folder"),
    "sparse index": lambda top: git(top, "sparse-checkout", "set", "--cone", "--sparse-index", "folder"),
    "split": lambda top: git(top, "update-index", "--split-index"),
}


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("how", HIDING)
def test_what_only_git_can_tell_is_not_plain(repository: Repository, how: str, version: int) -> None:
    """A flag, a submodule, a folder in place of its files, or entries in another file."""
    top = filled(repository.top)
    git(top, "update-index", "--index-version", str(version))
    HIDING[how](top)
    assert not is_plain(index_of(top))


def test_submodules_can_be_allowed(repository: Repository) -> None:
    """Of a fresh checkout an empty folder for each is all that there is to know."""
    top = filled(repository.top)
    _submodule(top)
    assert is_plain(index_of(top), submodules=True)
    HIDING["assume-unchanged"](top)
    assert not is_plain(index_of(top), submodules=True)


def test_a_flag_on_any_entry_is_seen(repository: Repository) -> None:
    """On the first, in the middle, on the last: names of all lengths are stepped over right."""
    top = filled(repository.top)
    for name in git(top, "ls-files", "-z").split("\0")[:-1]:
        git(top, "update-index", "--assume-unchanged", "--", name)
        assert not is_plain(index_of(top)), name
        git(top, "update-index", "--no-assume-unchanged", "--", name)
    assert is_plain(index_of(top))


@pytest.mark.parametrize("cut", [0, 4, 11, 12, 40, 60, 75, 100])
def test_a_torn_index_is_not_plain(repository: Repository, cut: int) -> None:
    """Git is asked, and says what is wrong with it."""
    assert not is_plain(index_of(filled(repository.top))[:cut])


@given(st.binary(max_size=400))
def test_any_bytes_get_an_answer(data: bytes) -> None:
    """A session can write anything there."""
    assert is_plain(data) in {True, False}
    assert is_plain(b"DIRC\0\0\0\2\0\0\0\3" + data) in {True, False}


def test_a_file_that_is_missing_is_noticed(repository: Repository) -> None:
    """In any folder; what else is in the tree does not matter."""
    top = repository.top
    (top / "folder").mkdir()
    (top / "folder" / "b").write_text("b")
    git(top, "add", "-A")
    (top / "untracked").write_text("u")
    assert all_there(index_of(top), top)
    (top / "folder" / "b").unlink()
    assert not all_there(index_of(top), top)

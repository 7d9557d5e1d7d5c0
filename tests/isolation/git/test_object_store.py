"""Objects that sessions add: taken over if they are what their names say, found by everybody meanwhile."""

import errno
import os
import zlib
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from isolation.errors import WorkspaceError
from isolation.git.contained import object_store
from isolation.git.contained.object_store import (
    SHARED,
    drop_store,
    object_mounts,
    removed_from,
    settle_stores,
    store_of,
    take_over,
    take_over_left,
)
from isolation.model import Means
from tests.conftest import git

NAME = "a"


def stored(repo: Path, text: str, name: str = NAME) -> str:
    """Put an object into a store as a session does; return its id."""
    store = store_of(repo / ".git", name)
    (repo / "made").write_text(text)
    args = ("hash-object", "-w", "made")
    found = os.environ.get("GIT_OBJECT_DIRECTORY")
    assert found is None
    os.environ["GIT_OBJECT_DIRECTORY"] = str(store)
    try:
        return git(repo, *args).strip()
    finally:
        del os.environ["GIT_OBJECT_DIRECTORY"]


def loose(folder: Path, name: str) -> Path:
    """Return where an object of this id is."""
    return folder / name[:2] / name[2:]


def test_an_object_is_found_at_once_and_moves_to_the_others(repo: Path) -> None:
    """Before, while and after it is taken over, git in the main checkout reads it; then nothing is left."""
    common = repo / ".git"
    (common / "objects" / "info" / "alternates").write_text("/some/where/else\n")
    assert object_mounts(common, NAME, Means.MOUNTS) is not None
    name = stored(repo, "new\n")
    assert git(repo, "cat-file", "-p", name) == "new\n"
    take_over(common, NAME)
    assert loose(common / "objects", name).stat().st_mode & 0o777 == 0o444
    assert not loose(store_of(common, NAME), name).exists()
    assert git(repo, "cat-file", "-p", name) == "new\n"
    later = stored(repo, "later\n")
    drop_store(common, NAME)
    assert not store_of(common, NAME).exists()
    assert git(repo, "cat-file", "-p", later) == "later\n"
    assert (common / "objects" / "info" / "alternates").read_text() == "/some/where/else\n"
    assert object_mounts(common, NAME, Means.LANDLOCK) is None


def test_a_full_disk_leaves_an_object_where_it_is(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing leaves a store before its copy is on the disk; later it is taken over, from any store."""
    common = repo / ".git"
    object_mounts(common, NAME, Means.MOUNTS)
    name = stored(repo, "new\n")
    there, here = loose(common / "objects", name), loose(store_of(common, NAME), name)

    def full(_: Path) -> None:
        assert here.exists()
        assert not there.exists()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(object_store, "sync_disk", full)
        with pytest.raises(OSError, match="No space"):
            take_over_left(common)
    assert here.exists()
    assert not [path for path in there.parent.iterdir() if path.name.startswith("tmp_obj")]
    take_over_left(common)
    assert there.exists()
    assert not here.exists()


def test_what_is_not_what_its_name_says_is_not_taken_over(repo: Path) -> None:
    """Other content, no object, a rest behind it, a link, a FIFO, a folder: gone, and no more changes."""
    common = repo / ".git"
    object_mounts(common, NAME, Means.MOUNTS)
    store, there = store_of(common, NAME), git(repo, "rev-parse", "HEAD").strip()
    before = loose(common / "objects", there).read_bytes()
    real = stored(repo, "real\n")
    whole = loose(store, real).read_bytes()
    loose(store, real).unlink()
    names = [f"{number:02x}{'0' * 38}" for number in range(6)]
    texts = [zlib.compress(b"blob 4\0evil"), b"no object", whole + b"rest", whole[:-3]]
    for name in names:
        loose(store, name).parent.mkdir(exist_ok=True)
    for name, text in zip((*names[:2], real, there), texts, strict=True):
        loose(store, name).parent.mkdir(exist_ok=True)
        loose(store, name).write_bytes(text)
    loose(store, names[2]).symlink_to(repo / "README.md")
    os.mkfifo(loose(store, names[3]))
    loose(store, names[4]).mkdir()
    free = next(name for name in ("ff", "fe", "fd") if not (store / name).exists())
    (store / free).symlink_to(repo)
    writing = loose(store, names[5]).with_name("tmp_obj_1")
    writing.write_bytes(b"begun")
    take_over_left(common)  # as any other command may, before the session is judged
    refused = removed_from(common, NAME)
    assert sorted(refused) == sorted((*(f"{each[:2]}/{each[2:]}" for each in (*names[:5], real)), free))
    take_over(common, NAME)
    assert removed_from(common, NAME) == ()
    assert [path for path in store.rglob("*") if not path.is_dir() or path.is_symlink()] == [writing]
    assert not any(loose(common / "objects", name).exists() for name in (*names, real))
    assert loose(common / "objects", there).read_bytes() == before
    assert git(repo, "fsck") == ""


def test_the_store_of_many_commands_stays_small(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without objects goes once no git can be about to write to it; git makes it again."""
    common = repo / ".git"
    monkeypatch.setattr(object_store, "_SETTLED", 10**12)
    for name in (SHARED, NAME):
        object_mounts(common, name, Means.MOUNTS)
        emptied = loose(store_of(common, name), stored(repo, "new\n", name)).parent
        take_over(common, name)
        assert emptied.is_dir()
    monkeypatch.setattr(object_store, "_SETTLED", 0)
    for name in (SHARED, NAME):
        take_over(common, name)
    assert not (store_of(common, SHARED) / emptied.name).exists()
    assert emptied.is_dir(), "a session may be about to write there"
    again = stored(repo, "new\n", SHARED)
    writing = loose(store_of(common, SHARED), again).with_name("tmp_obj_1")
    writing.write_bytes(b"begun")
    for _ in range(2):
        take_over(common, SHARED)
    assert list(writing.parent.iterdir()) == [writing]
    assert git(repo, "cat-file", "-p", again) == "new\n"


def test_a_repository_that_was_moved_finds_its_stores_again(repo: Path) -> None:
    """What a killed run left in a store is found after the whole folder has another path."""
    object_mounts(repo / ".git", NAME, Means.MOUNTS)
    name = stored(repo, "new\n")
    moved = repo.rename(repo.with_name("moved"))
    settle_stores(moved / ".git")
    assert git(moved, "cat-file", "-p", name) == "new\n"


def test_a_command_that_comes_too_late_registers_no_store(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a command prepares, its worktree is removed: it is refused, and git misses no folder."""
    common, tree, locked = repo / ".git", repo.with_name("tree"), object_store._locked
    tree.mkdir()

    def removed_first(where: Path) -> AbstractContextManager[None]:
        monkeypatch.undo()
        tree.rmdir()
        drop_store(common, NAME)
        return locked(where)

    monkeypatch.setattr(object_store, "_locked", removed_first)
    with pytest.raises(WorkspaceError, match="is gone"):
        object_mounts(common, NAME, Means.MOUNTS, tree=tree)
    assert not (common / "objects" / "info" / "alternates").exists()
    assert not store_of(common, NAME).exists()
    assert git(repo, "fsck") == ""

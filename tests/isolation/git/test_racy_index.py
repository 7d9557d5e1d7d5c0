"""An index as young as its files is settled, without losing a change that was made in the same second."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.git.direct.index_file import entries_of, identity_of, touched
from isolation.git.direct.racy_index import settle_racy
from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.worktree.worktrees import checkpointed, make

FILES = 800
"""So many that the index is large enough."""


@pytest.fixture
def many(repository: Repository) -> Repository:
    for number in range(FILES):
        (repository.top / f"f{number:04}").write_text(f"{number:04}\n")
    git(repository.top, "add", "-A")
    git(repository.top, "commit", "-qm", "many")
    return repository


def settled(index: Path) -> None:
    """Let git trust the times in an index, whatever they are."""
    os.utime(index, ns=(2**60, 2**61))


async def test_a_change_in_the_second_of_the_checkout_is_seen(many: Repository) -> None:
    """Same size, same second: only the nanoseconds tell, and git, left alone with a newer index, is blind."""
    workspace = await make(many)
    tree, index = workspace.path, many.common_dir / "worktrees" / "one" / "index"
    (tree / "f0007").write_text("7000\n")
    (tree / "f0008").unlink()
    (tree / "new").write_text("new")
    settle_racy(index.parent, tree, workspace.index)
    assert identity_of(index) != workspace.index
    settled(index)
    assert git(tree, "status", "--porcelain").split() == ["M", "f0007", "D", "f0008", "??", "new"]


async def test_files_that_nobody_touched_keep_their_times(many: Repository) -> None:
    """Git need not read them again."""
    workspace = await make(many)
    tree, index = workspace.path, many.common_dir / "worktrees" / "one" / "index"
    (tree / "f0007").write_text("7000\n")
    before = index.read_bytes()
    settle_racy(index.parent, tree, workspace.index)
    os.utime(index, ns=(0, 0))  # so all entries are looked at
    assert len(touched(index, tree)) == 1
    differ = [at for at, (old, new) in enumerate(zip(before, index.read_bytes(), strict=True)) if old != new]
    assert len(differ) <= 16 + 20  # the times of one entry, and the checksum
    assert git(tree, "fsck", "--no-dangling") == ""


def _staged(tree: Path) -> None:
    git(tree, "add", "f0007")


def _locked(tree: Path) -> None:
    Path(git(tree, "rev-parse", "--git-path", "index.lock").strip()).touch()


def _hidden(tree: Path) -> None:
    git(tree, "update-index", "--assume-unchanged", "f0007")


@pytest.mark.parametrize("act", [_staged, _locked, _hidden])
async def test_what_is_not_as_the_checkout_left_it_is_left_to_git(
    many: Repository, act: Callable[[Path], None]
) -> None:
    """An index that somebody has written, or is writing, stays as it is."""
    workspace = await make(many)
    tree, index = workspace.path, many.common_dir / "worktrees" / "one" / "index"
    (tree / "f0007").write_text("7000\n")
    act(tree)
    before, lock = index.read_bytes(), index.with_name("index.lock")
    locked = lock.exists()
    settle_racy(index.parent, tree, workspace.index)
    assert index.read_bytes() == before
    assert lock.exists() is locked


async def test_a_checkpoint_has_the_change(many: Repository) -> None:
    """A story that ends in the second in which it began loses nothing."""
    workspace = await make(many)
    (workspace.path / "f0007").write_text("7000\n")
    made = checkpointed(many, workspace, workspace.index)
    assert made.among == ("f0007",)
    assert git(many.top, "show", f"{made.tip}:f0007") == "7000\n"


def test_without_nanoseconds_no_file_counts_as_untouched(
    many: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems know seconds only; there, git reads what is as young as the index."""
    index, lstat = many.common_dir / "index", os.lstat
    data = bytearray(index.read_bytes())
    for position, _ in entries_of(bytes(data), 20):
        for nanoseconds in (position + 4, position + 12):
            data[nanoseconds : nanoseconds + 4] = bytes(4)
    index.write_bytes(data)
    os.utime(index, ns=(0, 0))  # so all entries are looked at

    class Seconds:
        def __init__(self, path: bytes) -> None:
            self._found = lstat(path)

        def __getattr__(self, name: str) -> int:
            value: int = getattr(self._found, name)
            return value // 10**9 * 10**9 if name.endswith("_ns") else value

    monkeypatch.setattr(os, "lstat", Seconds)
    assert len(touched(index, many.top)) == FILES + 1

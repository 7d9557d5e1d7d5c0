"""Commits that travel between two clones."""

import subprocess
from pathlib import Path

import pytest

from isolation.errors import IsolationError
from isolation.git.clones.travel import move_branch, packed, unpack
from isolation.git.repository import Repository
from tests.conftest import git


def _commit(top: Path, name: str, text: str) -> str:
    (top / name).write_text(text)
    git(top, "add", name)
    git(top, "commit", "-qm", name)
    return git(top, "rev-parse", "HEAD").strip()


def test_a_small_pack_brings_a_commit_and_moves_its_branch(repo: Path, tmp_path: Path) -> None:
    """What is there already does not travel, and nothing of the packing is left."""
    base = git(repo, "rev-parse", "HEAD").strip()
    subprocess.run(["git", "clone", "-q", str(repo), str(tmp_path / "other")], check=True)
    tip = _commit(repo, "new.txt", "new")
    here, there, folder = Repository.open(repo), Repository.open(tmp_path / "other"), tmp_path / "packs"
    pack = packed(here, folder, [tip], without=[base], most=1 << 16)
    assert 0 < len(pack) < 1000
    assert not list(folder.iterdir())
    unpack(there, pack)
    move_branch(there, "autopilot/a", tip)
    assert git(there.top, "show", "autopilot/a:new.txt") == "new"
    assert packed(here, folder, [tip], without=[base], most=10) == b"", "too large for that"


def test_what_a_branch_leaves_behind_is_kept(repo: Path) -> None:
    """A branch that moves to a commit which is not after its own leaves a reference to that."""
    base = git(repo, "rev-parse", "HEAD").strip()
    left = _commit(repo, "left.txt", "left")
    git(repo, "branch", "autopilot/a", left)
    git(repo, "reset", "-q", "--hard", base)
    tip = _commit(repo, "other.txt", "other")
    move_branch(Repository.open(repo), "autopilot/a", tip)
    assert git(repo, "rev-parse", "autopilot/a").strip() == tip
    assert left in git(repo, "for-each-ref", "refs/autopilot/replaced")


def test_a_pack_whose_objects_name_what_is_not_there_is_refused(repo: Path, tmp_path: Path) -> None:
    """Git checks what arrives: a commit without its parent is not taken over."""
    subprocess.run(["git", "clone", "-q", str(repo), str(tmp_path / "other")], check=True)
    first = _commit(repo, "first.txt", "first")
    tip = _commit(repo, "second.txt", "second")
    pack = packed(Repository.open(repo), tmp_path / "packs", [tip], without=[first], most=1 << 16)
    there = Repository.open(tmp_path / "other")
    with pytest.raises(IsolationError):
        unpack(there, pack)
    with pytest.raises(subprocess.CalledProcessError):
        git(there.top, "cat-file", "-e", tip)

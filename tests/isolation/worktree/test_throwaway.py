"""Throwaway worktrees: what a killed process left of one does not stop the next."""

import re
import shutil
from pathlib import Path

import pytest
import trio

from isolation.git.registrations import load_registrations, lock_reason
from isolation.git.repository import Repository
from isolation.worktree.throwaway import clear_leftovers, open_throwaway
from tests.conftest import git


async def test_a_registration_without_its_folder_is_replaced(repo: Path) -> None:
    """A kill before the folder was made, or after it was moved away, leaves only the locked registration."""
    repository, path = Repository.open(repo), repo.parent / "trees" / "_land"
    path.parent.mkdir()
    head = git(repo, "rev-parse", "HEAD").strip()
    reason = lock_reason("run", "_land")
    git(repo, "worktree", "add", "-q", "--detach", "--lock", "--reason", reason, str(path))
    shutil.rmtree(path)
    async with open_throwaway(
        repository, run_id="next", path=path, commit=head, limiter=trio.CapacityLimiter(1)
    ) as (workspace, _):
        assert workspace.head == head
        assert (path / ".git").exists()
    assert not path.exists()
    assert [entry.path for entry in load_registrations(repository)] == [repo]


@pytest.mark.parametrize(
    "damage", [("commondir",), ("HEAD",), ("HEAD", "commondir", "gitdir"), ("HEAD", "commondir", ".git")]
)
def test_what_a_kill_in_the_middle_left_is_removed(repo: Path, damage: tuple[str, ...]) -> None:
    """A killed `git worktree add` leaves empty files, with which git itself fails; others' entries stay."""
    repository, root = Repository.open(repo), repo.parent / "trees"
    root.mkdir()
    for name in ("_land-2", "other"):
        reason = lock_reason("run", name)
        place = str(root / name)
        git(repo, "worktree", "add", "-q", "--no-checkout", "--detach", "--lock", "--reason", reason, place)
    admin = repo / ".git" / "worktrees" / "_land-2"
    for name in damage:
        (admin / name).write_text("") if name != ".git" else (admin / "gitdir").unlink()
    if len(damage) > 1:
        (root / "_land-2" / ".git").unlink()
    clear_leftovers(repository, root, re.compile(r"_land(-\d+)?"))
    assert not (root / "_land-2").exists()
    assert not admin.exists()
    assert [entry.path for entry in load_registrations(repository)] == [repo, root / "other"]
    assert git(repo, "worktree", "list").count("\n") == 2

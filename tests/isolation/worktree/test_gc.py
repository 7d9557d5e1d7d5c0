"""What `gc` finds, and what it may remove."""

import os
import shutil
from pathlib import Path

import pytest

from isolation.files import lease
from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository
from isolation.paths import worktree_root
from isolation.worktree import gc as survey
from tests.conftest import git
from tests.isolation.worktree.worktrees import branches, commit, make


@pytest.fixture
def root(repository: Repository) -> Path:
    return worktree_root(repository.common_dir)


async def test_every_folder_gets_a_verdict_with_its_reason(repository: Repository, root: Path) -> None:
    """Acceptance 13: clean goes; dirty, detached, foreign and stray stay, each with the reason."""
    commit((await make(repository, "clean")).path)
    ((await make(repository, "dirty")).path / "new").write_text("x")
    git((await make(repository, "detached")).path, "checkout", "-q", "--detach")
    commit(root / "detached", "only here")
    shutil.rmtree((await make(repository, "gone")).path)
    git(repository.top, "worktree", "add", "-q", "-b", "mine", str(root / "foreign"))
    (root / "stray").mkdir()
    found = {each.path.name: each for each in await survey.survey(repository, root)}
    verdicts = {name: each.removable for name, each in found.items()}
    assert verdicts == {
        "clean": True,
        "gone": True,
        "dirty": False,
        "detached": False,
        "foreign": False,
        "stray": False,
    }
    assert found["dirty"].reason == "1 uncommitted file: new"
    assert "no branch or tag reaches" in found["detached"].reason
    assert found["foreign"].reason == "a worktree that autopilot-multi did not make"
    assert found["stray"].reason == "not a worktree of this repository"
    assert (found["clean"].branch, found["clean"].run_id) == ("autopilot/clean", "run-1")


async def test_only_the_removable_are_removed_and_branches_stay(repository: Repository, root: Path) -> None:
    """Acceptance 13, 14: applied to everything, only what is safe is gone."""
    for name in ("clean", "gone", "dirty"):
        await make(repository, name)
    shutil.rmtree(root / "gone")
    (root / "dirty" / "new").write_text("x")
    (root / "stray").mkdir()
    closings = {
        each.path.name: await survey.remove(repository, each)
        for each in await survey.survey(repository, root)
    }
    assert {name for name, each in closings.items() if each.removed} == {"clean", "gone"}
    assert set(os.listdir(root)) == {"dirty", "stray"}  # noqa: PTH208  names are all that counts
    assert [entry.path.name for entry in load_registrations(repository)[1:]] == ["dirty"]
    assert branches(repository.top) == {"main", "autopilot/clean", "autopilot/gone", "autopilot/dirty"}


async def test_what_changed_since_the_survey_is_not_removed(repository: Repository, root: Path) -> None:
    """A verdict is made again at the moment of removal."""
    path = (await make(repository)).path
    (finding,) = await survey.survey(repository, root)
    assert finding.removable
    (path / "new").write_text("x")
    closing = await survey.remove(repository, finding)
    assert (closing.removed, closing.reason) == (False, "1 uncommitted file: new")
    assert (path / "new").exists()


async def test_a_live_run_keeps_its_worktrees(repository: Repository, root: Path) -> None:
    """While its run holds the lease, a clean worktree is in use."""
    await make(repository, "live", run="run-7")
    await make(repository, "old", run="run-6")
    with lease.acquire(repository.common_dir, "run-7"):
        found = {each.path.name: each for each in await survey.survey(repository, root)}
    assert (found["live"].removable, found["live"].reason) == (False, "run run-7 is using it")
    assert found["old"].removable
    after = {each.path.name: each.removable for each in await survey.survey(repository, root)}
    assert after == {"live": True, "old": True}


async def test_looking_changes_nothing(repository: Repository, root: Path) -> None:
    """`gc` without `--apply` leaves every worktree as registered as before."""
    await make(repository)
    before = load_registrations(repository)
    await survey.survey(repository, root)
    assert load_registrations(repository) == before

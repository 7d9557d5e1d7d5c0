"""Mounts of a session when something vanishes between the plan and the start."""

from pathlib import Path

import pytest

from isolation.keeper.trying import run_trial
from isolation.keeper.wire import confinement_texts
from isolation.model import Confinement, EnforcementLevel, Hidden, Means
from tests.isolation.guard.guard_scenes import can_mount

pytestmark = pytest.mark.skipif(not can_mount(), reason="this machine cannot mount")


def tried(folder: Path, *, stand_in: Path) -> str:
    """Confine a process in which some paths are gone, and return what it says about its trial."""
    (folder / "tree" / "own").mkdir(parents=True, exist_ok=True)
    (folder / "kept").touch()
    confinement = Confinement(
        level=EnforcementLevel.DENY,
        means=Means.MOUNTS,
        read_only={folder / "tree": "the tree", folder / "closed and gone": "nothing"},
        writable=(folder / "tree" / "own", folder / "open and gone"),
        hidden={
            folder / "kept": Hidden(stand_in=stand_in, what="a file"),
            folder / "hidden and gone" / "file": Hidden(stand_in=folder / "kept", what="a file"),
        },
        shown=(folder / "shown and gone",),
    )
    return run_trial([str(folder), *confinement_texts(confinement)])


def test_what_is_gone_needs_no_mount(tmp_path: Path) -> None:
    """A closed, open, hidden or shown path that somebody deleted is left out; the rest holds."""
    (tmp_path / "empty").touch()
    assert "own" in tried(tmp_path, stand_in=tmp_path / "empty").split()


def test_nothing_private_shows_because_its_stand_in_is_gone(tmp_path: Path) -> None:
    """The session does not start."""
    assert tried(tmp_path, stand_in=tmp_path / "gone").startswith("failed clone a mount: No such file")

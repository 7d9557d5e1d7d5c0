"""Kills between any two changes that a layer makes on the disk; see `overlay_kills.py`."""

import subprocess
import sys
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.isolation.guard.guard_scenes import require
from tests.isolation.worktree.pool import overlay_kills


@pytest.mark.parametrize(
    ("stage", "step"),
    [
        ("open", 30),
        ("plain", 12),
        *(pytest.param(stage, 1, marks=pytest.mark.slow) for stage in overlay_kills.STAGES),
    ],
)
def test_a_kill_leaves_the_tree_whole(stage: str, step: int) -> None:
    """What was written is there for the next run, as a layer or as an ordinary worktree."""
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    argv = [sys.executable, "-m", overlay_kills.__name__, stage, str(step)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4])
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-2]) > 0

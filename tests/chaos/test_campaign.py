"""Kills at random moments in every mode: a sample in worktrees with each run, many in `make chaos`."""

import os
import random
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.chaos.campaign import campaign
from tests.chaos.scenes import MODES
from tests.isolation.guard.guard_scenes import require

SAMPLE = 8
KILLS = int(os.environ.get("CHAOS_KILLS", "250"))
"""In each mode."""


def _strike(folder: Path, mode: str, kills: int, *, each: int) -> None:
    if mode in {"divert", "deny"}:
        require(EnforcementLevel(mode), Means.MOUNTS)
    seed = random.SystemRandom().randrange(1 << 30)
    figures = campaign(folder, seed, kills=kills, modes=(mode,), each=each)
    print(f"seed {seed}: {figures}")  # noqa: T201  figures to read, and a failure must be replayable
    assert not figures.findings, str(figures)


def test_a_sample_of_kills(tmp_path: Path) -> None:
    """Nothing is lost or repeated, no process is left, and each story ends as if nobody had been killed."""
    _strike(tmp_path, "worktrees", SAMPLE, each=SAMPLE)


@pytest.mark.chaos
@pytest.mark.parametrize("mode", MODES)
def test_a_thousand_kills(tmp_path: Path, mode: str) -> None:
    """The same, 250 times in each mode."""
    _strike(tmp_path, mode, KILLS, each=10)

"""Kills at random moments in every mode: a sample of 30 with each run, 1,000 in `make chaos`."""

import os
import random
import subprocess
import uuid
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.chaos.campaign import campaign
from tests.chaos.checker import Checker, Users
from tests.chaos.scenes import MODES
from tests.isolation.guard.guard_scenes import require

SAMPLE = 30
KILLS = int(os.environ.get("CHAOS_KILLS", "1000"))
"""In all modes together."""


def _share(kills: int, mode: str) -> int:
    """Return how many of the kills are in this mode; the first modes get what does not divide."""
    each, more = divmod(kills, len(MODES))
    return each + (list(MODES).index(mode) < more)


def _strike(folder: Path, mode: str, kills: int, *, each: int) -> None:
    if mode in {"divert", "deny"}:
        require(EnforcementLevel(mode), Means.MOUNTS)
    seed = random.SystemRandom().randrange(1 << 30)
    figures = campaign(folder, seed, kills=kills, modes=(mode,), each=each)
    print(f"seed {seed}: {figures}")  # noqa: T201  figures to read, and a failure must be replayable
    assert not figures.findings, str(figures)


def test_only_a_process_that_does_not_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker may look just when a command of a killed run has begun, and will end by itself."""
    nothing = Users(head="", branch="", main="", staged="", files={})
    mark = f"mark-{uuid.uuid4().hex}"
    checker = Checker(tmp_path, tmp_path / "ledger", mark=mark, before=nothing, expected={})
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, "CHAOS_MARK": mark}) as command:
        assert [pid for pid, _ in checker.left(0)] == [command.pid]
        monkeypatch.setattr("time.sleep", lambda _: command.communicate())
        assert checker.left() == []


@pytest.mark.parametrize("mode", MODES)
def test_a_sample_of_kills(tmp_path: Path, mode: str) -> None:
    """Nothing is lost or repeated, no process is left, and each story ends as if nobody had been killed."""
    _strike(tmp_path, mode, _share(SAMPLE, mode), each=SAMPLE)


@pytest.mark.chaos
@pytest.mark.parametrize("mode", MODES)
def test_a_thousand_kills(tmp_path: Path, mode: str) -> None:
    """The same, a thousand times over all modes."""
    _strike(tmp_path, mode, _share(KILLS, mode), each=10)

"""`make chaos`: the power is cut at random moments; what the journal has acknowledged is there afterwards."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.acceptance.program import started
from tests.chaos import enduring
from tests.chaos.power import own_disk
from tests.chaos.processes import send
from tests.chaos.scenes import prepare

pytestmark = pytest.mark.chaos
LONGEST = 1.0
PATIENCE = 20.0


@pytest.mark.parametrize("seed", range(int(os.environ.get("CHAOS_CUTS", "6"))))
@pytest.mark.parametrize("mode", ["worktrees", "detect", "landings"])
def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, mode: str, seed: int) -> None:
    """After each of two cuts, sessions of which the journal knows the end have their work; then all ends."""
    chance = random.Random(seed)  # noqa: S311  moments, not secrets
    with own_disk(tmp_path / "disk") as disk:
        scene = prepare(disk.place, mode, witness=tmp_path)
        os.sync()
        finished: set[str] = set()
        for _ in range(2):
            words = ("resume",) if scene.checker.rows() else scene.arguments
            with started(scene.repo, *words, environ=scene.environment):
                # On a slow machine a moment counted from the start would come before any session has ended.
                enduring.some_have_ended(scene, chance.randrange(4), limit=PATIENCE)
                time.sleep(chance.uniform(0.0, LONGEST))
                disk.cut()
                send([pid for pid, _ in scene.checker.processes()], signal.SIGKILL)
            enduring.at_rest(scene)
            disk.boot()
            rows = scene.checker.rows()
            finished |= {data["session_id"] for _, kind, data in rows if kind == "SessionEnded"}
            assert not scene.checker.kept(finished)
        new_runs = enduring.ends(scene, again=True)
        print(f"{mode}, seed {seed}: {len(finished)} acknowledged, {new_runs} new runs")  # noqa: T201  a figure
        assert not scene.checker.kept(finished)
        assert not enduring.judge(scene, excused=("is lost",))

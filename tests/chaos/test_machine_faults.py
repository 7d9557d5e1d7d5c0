"""`make chaos`: disks with errors, clocks that are set, many coordinators at once, swapped worktrees."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.program import started
from tests.chaos import enduring, faults
from tests.chaos.preloads import BrokenDisk, SetClock
from tests.chaos.scenes import prepare
from tests.chaos.test_faults import PLACES, excused

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("place", PLACES)
def test_input_output_errors_lose_nothing(tmp_path: Path, place: str, after: int) -> None:
    """The run says so, keeps all work, and ends as usual when the disk is well again."""
    scene = prepare(tmp_path, "worktrees")
    disk = BrokenDisk(faults.places(scene)[place], tmp_path)
    ran = enduring.troubled(scene, disk.broken(), after_sessions=after, env=disk.environment)
    new_runs = enduring.ends(scene, again=True)
    print(f"EIO {place} {after}: exit code {ran.code}, {new_runs} new runs: {ran.err[-200:]}")  # noqa: T201  a figure
    assert not enduring.judge(scene, excused=excused(new_runs))


@pytest.mark.parametrize("days", [365, -365])
@pytest.mark.parametrize("mode", ["worktrees", "detect", "landings"])
def test_a_clock_that_is_set_while_a_run_works(tmp_path: Path, mode: str, days: int) -> None:
    """A year more or less ends nothing and delays nothing; every duration stays true."""
    scene, clock, began = prepare(tmp_path, mode), SetClock(tmp_path), time.monotonic()
    enduring.troubled(scene, clock.set_by(days), after_sessions=2, env=clock.environment)
    enduring.at_rest(scene)
    took = time.monotonic() - began
    assert not [one for one in scene.checker.durations() if not 0 <= one <= took]
    new_runs = enduring.ends(scene)  # with the true clock again: set once more
    assert not enduring.judge(scene, excused=excused(new_runs))


@pytest.mark.parametrize("days", [365, -365])
@pytest.mark.parametrize("mode", ["worktrees", "detect"])
def test_a_clock_that_is_set_between_a_kill_and_resume(tmp_path: Path, mode: str, days: int) -> None:
    """Lease, registry, pauses and questions of another year block nothing."""
    scene, clock = prepare(tmp_path, mode), SetClock(tmp_path)
    enduring.interrupted(scene, after_sessions=3)
    with clock.set_by(days):
        enduring.command(scene, "resume", env=clock.environment)
        enduring.at_rest(scene)
    new_runs = enduring.ends(scene)
    assert not enduring.judge(scene, excused=excused(new_runs))


@pytest.mark.parametrize("mode", ["worktrees", "detect"])
def test_several_coordinators_at_once(tmp_path: Path, mode: str) -> None:
    """One of five runs; the others name it and change nothing."""
    scene = prepare(tmp_path, mode)
    with ExitStack() as stack:
        environ = enduring.environment(scene)
        five = [stack.enter_context(started(scene.repo, *scene.arguments, environ=environ)) for _ in range(5)]
        ran = [enduring.said_clearly(program.finish()) for program in five]
    refused = [one for one in ran if "has been active here since" in one.err or "another run" in one.err]
    print(f"{mode}: exit codes {[one.code for one in ran]}, {len(refused)} refused")  # noqa: T201  a figure
    assert refused
    new_runs = enduring.ends(scene, again=True)
    assert not enduring.judge(scene, excused=excused(max(new_runs, 5 - len(refused) - 1)))


def test_worktrees_that_were_swapped(tmp_path: Path) -> None:
    """Two folders that somebody exchanged are refused or put right; put back, everything ends as usual."""
    scene = prepare(tmp_path, "worktrees")
    enduring.interrupted(scene, after_sessions=2)
    root = scene.repo.with_name("repo.worktrees")
    one, two, *_ = sorted(path for path in root.iterdir() if (path / ".git").exists())
    faults.swap(one, two)
    ran = enduring.command(scene, "resume")
    enduring.at_rest(scene)
    print(f"swapped worktrees: exit code {ran.code}")  # noqa: T201  a figure
    assert not [finding for finding in scene.checker.at_rest() if finding.kind in {"lost", "fsck", "user's"}]
    if one.exists() and two.exists():
        faults.swap(one, two)
    enduring.command(scene, "resume", "--retry-failed")  # what was refused has failed, and says why
    new_runs = enduring.ends(scene)
    # What failed by itself gets new attempts, too, as the flag says.
    assert not enduring.judge(scene, excused=(*excused(new_runs), ", 'wrong', "))

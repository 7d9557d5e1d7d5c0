"""Whole runs of twenty stories under a fake clock, from seeds that replay; every law holds of each."""

import os
import random
from pathlib import Path

import pytest

from runner.core.events import events as ev
from runner.core.model import Story, StoryId
from runner.core.settings import Settings
from tests.simulation.checker import check
from tests.simulation.machine import Script
from tests.simulation.run import Played, play, play_these

CHUNKS = 10
HERE, CHAOS = 30, 10_000
MOST_NEEDED = 200


def _play_many(count: int, number: int, folder: Path) -> None:
    start = int(os.environ.get("SIMULATION_SEED") or random.SystemRandom().randrange(1 << 40))
    print(f"seeds {start + number * count} to {start + number * count + count - 1}")  # noqa: T201  to be replayed
    for seed in range(start + number * count, start + (number + 1) * count):
        check(play(seed, folder))


@pytest.mark.parametrize("number", range(CHUNKS))
def test_simulated_runs_obey_every_law(tmp_path: Path, number: int) -> None:
    """30 runs: the window is never exceeded, verdicts are unique, records add up, the run ends."""
    _play_many(HERE // CHUNKS, number, tmp_path)


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(CHUNKS))
def test_ten_thousand_simulated_runs(tmp_path: Path, number: int) -> None:
    """The same, for as many runs as a night has."""
    _play_many(CHAOS // CHUNKS, number, tmp_path)


def test_a_seed_replays(tmp_path: Path) -> None:
    """The same seed gives the same events at the same times."""
    first, second = (play(7, tmp_path / name) for name in ("a", "b"))
    assert first.events
    assert [_plain(event) for event in first.events] == [_plain(event) for event in second.events]


def _plain(event: ev.Event) -> tuple[float, str, object]:
    kind, data = ev.encode(event.body)
    data.pop("path", None)  # the only thing that names the folder
    return event.at, kind, data


def test_the_simulation_meets_everything_it_is_for(tmp_path: Path) -> None:
    """Every verdict, tier and switch that matters appears soon; else the laws prove nothing."""
    missing = {
        *("done", "failed", "parked", "skipped", "stopped", "no_work"),
        *("green", "warn", "degraded", "critical", "unknown"),
        *("user-abort", "cohort-aborted", "max-sessions-reached", "max-hours-exceeded", "stall-timeout"),
        *("cost-budget-exceeded", "token-budget-exceeded", "spiral", "failed-wave", "carryover-too-high"),
    }
    for seed in range(MOST_NEEDED):
        missing -= _met(play(seed, tmp_path))
        if not missing:
            return
    pytest.fail(f"not met in {MOST_NEEDED} runs: {', '.join(sorted(missing))}")


def _met(played: Played) -> set[str]:
    """Name the verdicts, tiers and switches of a run."""
    stories = played.run.stories.values()
    windows = (event.body for event in played.events if isinstance(event.body, ev.WindowChanged))
    return {
        *(story.status.value for story in stories),
        *(story.kill_switch.name for story in stories if story.kill_switch),
        *(body.tier for body in windows),
    }


@pytest.mark.parametrize(
    ("works", "status"),
    [
        (Script(seconds=7200, silent=True), "done"),
        (Script(seconds=7200), "done"),
        (Script(seconds=7200, silent=True, idle=True), "stopped"),
    ],
    ids=["busy in silence", "prints", "neither"],
)
def test_a_story_at_work_for_two_hours_is_neither_stalled_nor_inactive(
    tmp_path: Path, works: Script, status: str
) -> None:
    """Acceptance 34: only one that shows no sign of life at all is ended."""
    story = Story(id=StoryId("a"), title="", prompt="")
    calm = random.Random(0)  # noqa: S311  dice, not secrets
    played = play_these(0, tmp_path, calm, settings=Settings(), stories=(story,), draw=lambda _rng: works)
    assert played.run.stories[StoryId("a")].status.value == status
    assert played.run.kill_switch is None

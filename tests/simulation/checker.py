"""What must hold of every run, told from its events alone; shares no code with what made them.

Each law raises with the seed, so that the run can be played again.
"""

from collections import Counter
from pathlib import Path

from runner.core.events import events as ev
from runner.core.model import Status
from runner.records import telemetry
from tests.simulation.run import SECONDS_AN_HOUR, Played

_TOP = Path("/simulated")
FINAL = {"done", "failed", "parked", "skipped", "stopped", "no_work"}


def check(played: Played) -> None:
    """Check every law."""
    for law in (_window, _dependencies, _verdicts, _sessions, _cohort, _budget, _records, _end):
        try:
            law(played)
        except AssertionError as error:
            raise AssertionError(
                f"seed {played.seed}: {law.__name__[1:]}: {error}; "
                f"replay: python -m tests.simulation {played.seed}"
            ) from error


def _window(played: Played) -> None:
    """Start nothing beyond the window."""
    window, running = 0, set[str]()
    for event in played.events:
        match event.body:
            case ev.WindowChanged():
                window = event.body.window
                assert window <= played.settings.max_stories, f"window {window}"
            case ev.StoryStarted():
                running.add(event.body.story_id)
                assert len(running) <= window, f"{len(running)} running, window {window} at {event.at}"
            case ev.StoryFinished():
                running.discard(event.body.story_id)
            case _:
                pass


def _dependencies(played: Played) -> None:
    """No dependant of a story that is not done ever starts."""
    needs = {story.id: story.depends_on for story in played.stories}
    verdicts: dict[str, str] = {}
    for event in played.events:
        match event.body:
            case ev.StoryStarted():
                bad = [name for name in needs[event.body.story_id] if verdicts.get(name) != "done"]
                assert not bad, f"{event.body.story_id} started before {bad} were done"
            case ev.StoryFinished():
                verdicts[event.body.story_id] = event.body.verdict
            case _:
                pass


def _verdicts(played: Played) -> None:
    """Every story ends in exactly one verdict."""
    ended = Counter(
        event.body.story_id for event in played.events if isinstance(event.body, ev.StoryFinished)
    )
    assert ended == Counter({story.id: 1 for story in played.stories}), ended
    for story in played.run.stories.values():
        assert story.status.value in FINAL
        assert (story.status is Status.STOPPED) == (story.kill_switch is not None), story.id


def _sessions(played: Played) -> None:
    """Sessions of a story follow each other, within its time; every one that began has ended."""
    open_: dict[str, str] = {}
    running: set[str] = set()
    for event in played.events:
        match event.body:
            case ev.StoryStarted():
                running.add(event.body.story_id)
            case ev.StoryFinished():
                running.discard(event.body.story_id)
                assert event.body.story_id not in open_, "a verdict in the middle of a session"
            case ev.SessionStarted():
                assert event.body.story_id in running
                assert event.body.story_id not in open_, "two sessions of one story"
                open_[event.body.story_id] = event.body.session_id
            case ev.SessionEnded():
                assert open_.pop(event.body.story_id) == event.body.session_id
            case _:
                pass
    assert not open_


def _cohort(played: Played) -> None:
    """After the second spiral nothing begins any more, and nothing but the run's end ends it."""
    spirals = 0
    for event in played.events:
        if isinstance(event.body, ev.SpiralSeen):
            spirals += 1
            assert event.body.retries == (spirals == 1)
        if spirals > 1:
            assert not isinstance(event.body, ev.StoryStarted | ev.SessionStarted), (
                "began after the cohort's end"
            )


def _budget(played: Played) -> None:
    """No work session starts once the budget is spent."""
    budget, cost = played.settings.cost_budget, 0.0
    if budget is None:
        return
    for event in played.events:
        match event.body:
            case ev.SessionStarted() if event.body.kind == "work":
                assert cost < budget, f"a session started with {cost:.2f} of {budget:.2f} spent"
            case ev.SessionEnded():
                cost += event.body.cost_usd or 0.0
            case _:
                pass


def _records(played: Played) -> None:
    """One run record whose numbers are the sums of its stories' records."""
    run = played.run
    stories = [telemetry.story_record(run, story, top=_TOP) for story in run.stories.values()]
    record = telemetry.run_record(run)
    for name in ("iterations_completed", "stall_recovery_count", "spiral_recovery_count"):
        assert record[name] == sum(story[name] for story in stories), name
    assert record["counts"] == {
        status.value: sum(story["verdict"] == status.value for story in stories) for status in Status
    }
    assert record["story_count"] == len(stories)
    assert record["sessions"] == [name for story in stories for name in story["sessions"]]
    cost = sum(story["total_cost_usd"] or 0 for story in stories)
    assert abs((record["total_cost_usd"] or 0) - cost) < 1e-6
    assert record["child_run_ids"] == [story["autopilot_run_id"] for story in stories]
    assert record["cohort_aborted"] == any(story["aborted_by_cohort"] for story in stories)


def _end(played: Played) -> None:
    """End: at the latest when the time is over and the last sessions have reached their end."""
    slack = 3 * SECONDS_AN_HOUR
    assert played.lasted <= played.settings.max_hours * SECONDS_AN_HOUR + slack, f"{played.lasted:.0f} s"

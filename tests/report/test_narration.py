"""A run told line by line: one event, at most one harmless line."""

import time

import pytest

from runner.core.events import events as ev
from runner.core.events.fold import apply
from runner.core.model import RunSnapshot, StoryId
from runner.report.terminal.narration import line_for
from tests.records.sample_runs import RUN, ended_events, event, mixed_events, snapshot, started, working

A = StoryId("a")


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let wall clocks show UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def told(events: list[ev.Event]) -> list[str]:
    run = RunSnapshot(run_id=RUN, started_at=0.0)
    lines = []
    for item in events:
        run = apply(run, item)
        line = line_for(item, run)
        if line:
            lines.append(line)
    return lines


def test_whole_run_is_told() -> None:
    """Every line names its time and its story, in columns."""
    assert told(ended_events()) == [
        "12:03:11 run 20260102-120311-ab12 started: 3 stories, up to 3 in parallel",
        "12:03:12 api-3        started: The work of api-3",
        "12:03:12 api-3        branch autopilot/api-3 from 0123456789",
        "12:03:12 api-3        session 1 started (Implement, attempt 1 of 4)",
        "12:03:12 checkout-17  started: The work of checkout-17",
        "12:03:12 checkout-17  branch autopilot/checkout-17 from 0123456789",
        "12:03:12 checkout-17  session 1 started (Implement, attempt 1 of 4)",
        "12:03:24 api-3        session 1 succeeded in 11.8 s",
        "12:03:24 api-3        committed 89abcdef01 (2 commits)",
        "12:03:24 api-3        done: 2 commits, verified; next: git merge autopilot/api-3",
        "12:03:57 checkout-17  session 1 failed after 44.5 s: exit code 1",
        "12:03:57 checkout-17  attempt 3 of 4 failed: verify failed: `pytest -q` exited with 1",
        (
            "12:03:57 checkout-17  failed: verify failed: `pytest -q` exited with 1;"
            " next: autopilot-multi logs checkout-17"
        ),
        "12:03:57 checkout-17  worktree kept: 2 uncommitted files",
        (
            "12:03:57 web-1        skipped: checkout-17 failed, and this story depends on it;"
            " next: autopilot-multi logs checkout-17"
        ),
        "12:03:58 run 20260102-120311-ab12 ended: 1 done, 1 failed, 1 skipped in 47.4 s",
    ]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            ev.WindowChanged(window=2, tier="warn", reason="5.1 GB free"),
            "2 of 3 slots · tier warn, 5.1 GB free",
        ),
        (
            ev.AdmissionEnded(name="user-abort", detail="asked", hint=""),
            "no new stories will start: user-abort: asked",
        ),
        (ev.RunResumed(), f"run {RUN} resumed: 1 queued"),
        (ev.Noted(message="careful"), "note: careful"),
        (ev.Noted(message="careful", story_id=A), "a  note: careful"),
    ],
)
def test_rarer_events_are_told(body: ev.Body, line: str) -> None:
    """Window, end of admission, resume and notes have their line."""
    assert told([started("a"), event(1, body)])[1] == f"12:03:12 {line}"


@pytest.mark.parametrize(
    "body",
    [
        ev.StoryQueued(story_id=A),
        ev.WorkspacePlanned(story_id=A, branch="b", path="p"),
        ev.WorkspaceClosed(story_id=A, removed=True, reason=""),
        ev.CheckpointPlanned(story_id=A),
        ev.OutputSeen(story_id=A, line="noise"),
    ],
)
def test_noise_is_not_told(body: ev.Body) -> None:
    """What only machines need gets no line."""
    assert line_for(event(1, body), snapshot([started("a")])) is None


def test_hostile_words_are_neutralised() -> None:
    """Escapes and line breaks of an agent stay out of the narration."""
    hostile = ev.Noted(message="\x1b[31mred\x1b[0m\nsecond line", story_id=A)
    line = told([started("a"), event(1, hostile)])[1]
    assert line.endswith("note: red second line")


def test_events_of_unknown_sessions_do_not_break_it() -> None:
    """A session's end whose start was never seen is told all the same."""
    lost = ev.SessionEnded(story_id=A, session_id="lost", outcome="stalled", exit_code=None, detail="silent")
    assert told([started("a"), *working("a", 1), event(2, lost)])[-1].endswith("session 2 stalled: silent")


def test_mixed_run_is_told_without_a_gap() -> None:
    """Every event of a real run can be told."""
    assert len(told(mixed_events())) > 10

"""The record files: every field, both joins, and writers that never harm a line that is not theirs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.core.errors import SystemFaultError
from runner.core.events import events as ev
from runner.core.model import RunId, RunSnapshot, StoryId
from runner.records import telemetry
from runner.records.session_record import session_record
from runner.records.telemetry import LOOP_KEY, SESSION_KEY
from tests.records.sample_runs import (
    COMMIT,
    RUN,
    ended_events,
    event,
    mixed_events,
    session_ended,
    snapshot,
    started,
    working,
)

TOP = Path("/srv/app")

STORY_FIELDS = {
    *("schema_version", "autopilot_run_id", "kind", "parent_run_id", "story_id", "started_at"),
    *(
        "completed_at",
        "duration_seconds",
        "waited_seconds",
        "max_sessions",
        "max_hours",
        "confidence_threshold",
    ),
    *("iterations_completed", "kill_switch", "kill_switch_detail", "sessions", "host_class"),
    *("resource_verdict_at_start", "fallback_to_manual", "dry_run", "total_tokens_used", "cost_estimated"),
    *("total_cost_usd", "worktree_path", "branch", "commit", "stall_recovery_count"),
    *("spiral_recovery_count", "blocked_by", "aborted_by_cohort", "verdict"),
}
RUN_FIELDS = STORY_FIELDS | {
    *("child_run_ids", "stop_reason", "story_count", "counts", "cohort_aborted", "kill_detail"),
}
SESSION_FIELDS = {
    *("schema_version", "session_id", "session_type", "session_kind", "mode", "outcome", "assumed"),
    *("autopilot_run_id", "parent_run_id", "agent_identity", "branch", "duration_seconds"),
    *("worktree_path", "started_at", "completed_at", "status", "total_waves", "waves", "agent_summary"),
    *("total_agents", "total_files_changed", "effectiveness", "input_tokens", "output_tokens"),
    *(
        "total_tokens",
        "cost_usd",
        "cost_estimated",
        "tool_uses",
        "model",
        "escalated",
        "step",
        "attempt",
        "conversation",
        "agents_per_wave",
    ),
}


def loops(run: RunSnapshot) -> list[dict[str, Any]]:
    stories = [telemetry.story_record(run, story, top=TOP) for story in run.stories.values()]
    return [*stories, telemetry.run_record(run)]


def sessions(run: RunSnapshot) -> list[dict[str, Any]]:
    return [
        session_record(run, story, session, top=TOP)
        for story in run.stories.values()
        for session in story.sessions
    ]


def test_story_record_has_every_field() -> None:
    """One story's line says what it did, in the documented words."""
    record = loops(snapshot(ended_events()))[0]
    assert set(record) == STORY_FIELDS
    assert record["autopilot_run_id"] == f"{RUN}/api-3"
    assert record["started_at"] == "2026-01-02T12:03:12.000Z"
    assert record["completed_at"] == "2026-01-02T12:03:24.300Z"
    assert record["duration_seconds"] == 12.3
    assert record["iterations_completed"] == 1
    assert record["total_tokens_used"] == 1050
    assert record["total_cost_usd"] == 0.25
    assert (record["max_sessions"], record["host_class"]) == (5, "linux-2c")
    assert (record["branch"], record["commit"], record["verdict"]) == ("autopilot/api-3", COMMIT, "done")


def test_run_record_counts_its_stories() -> None:
    """The run's line has every field, and its counts equal its stories' verdicts."""
    *stories, run = loops(snapshot(ended_events()))
    assert set(run) == RUN_FIELDS
    assert (run["kind"], run["stop_reason"], run["story_count"]) == ("run", "backlog-done", 3)
    verdicts = [story["verdict"] for story in stories]
    assert {name: number for name, number in run["counts"].items() if number} == {
        name: verdicts.count(name) for name in set(verdicts)
    }


def test_kill_switch_is_named_in_both_records() -> None:
    """A run and a story that were ended by a kill-switch say so, with the detail."""
    switch = {"name": "max-hours-exceeded", "detail": "8 h have passed", "hint": "raise --max-hours"}
    stopped = ev.StoryFinished(
        story_id=StoryId("a"), verdict="stopped", reason="time is up", kill_switch=switch
    )
    run = snapshot([started("a"), event(1, ev.AdmissionEnded(**switch)), event(2, stopped)])
    story, whole = loops(run)
    assert (story["kill_switch"], story["kill_switch_detail"]) == (switch["name"], switch["detail"])
    assert (whole["stop_reason"], whole["kill_detail"]) == (switch["name"], switch["detail"])


def test_session_record_has_every_field() -> None:
    """A session's line carries what the agent reported; what is unknown is null, or named as assumed."""
    first, second = sessions(snapshot([*mixed_events(), *working("ops-1", 50)]))[:2]
    assert set(first) == SESSION_FIELDS
    assert first["agent_summary"] == {"complete": 3, "partial": 0, "failed": 0, "spiral": 1}
    assert first["effectiveness"] == {"planned_issues": 4, "carryover": 1, "completion_rate": 0.75}
    assert (first["outcome"], second["outcome"]) == ("ok", "failed")
    assert (first["session_type"], first["session_kind"], first["mode"]) == ("feature", "work", "multi-story")
    running = sessions(snapshot([started("a"), *working("a", 1)]))[0]
    assert (running["status"], running["outcome"], running["total_tokens"]) == ("abandoned", "running", None)
    assert running["completed_at"] == running["started_at"]
    assert {"completed_at", "agent_summary", "total_waves"} <= set(running["assumed"])


@pytest.mark.parametrize(
    ("effect", "rate"),
    [
        ({"planned_issues": 4, "completed": 3, "carryover": 0}, 0.75),
        ({"planned_issues": 3, "carryover": 1}, 0.6667),
        ({"planned_issues": 4, "carryover": 1, "completion_rate": 0.5}, 0.5),
        ({"planned_issues": 0, "carryover": 0}, None),
        ({"planned_issues": 4}, None),
        ({"completed": 4}, None),
        ({}, None),
    ],
)
def test_the_completion_rate_follows_from_what_was_reported(
    effect: dict[str, float], rate: float | None
) -> None:
    """It is reported itself, or follows from what was completed or carried over; otherwise it is unknown."""
    ended = ev.SessionEnded(
        story_id=StoryId("a"), session_id=f"{RUN}-a-1", outcome="ok", exit_code=0, effectiveness=effect
    )
    record = sessions(snapshot([started("a"), *working("a", 1), event(2, ended)]))[0]
    assert record["effectiveness"]["completion_rate"] == rate


def test_a_checkpoint_tells_what_its_session_changed() -> None:
    """The files of a checkpoint belong to the work session before it, not to a later one."""
    done = ev.Checkpointed(story_id=StoryId("a"), commit=COMMIT, commits=1, files=3)
    events = [started("a"), *working("a", 1), session_ended("a", 2), event(3, done)]
    events += working("a", 4, attempt=2)
    assert [record["total_files_changed"] for record in sessions(snapshot(events))] == [3, 0]


def test_paths_are_relative_to_the_repository() -> None:
    """No record gives away where the repository lies."""
    run = snapshot(mixed_events())
    assert loops(run)[1]["worktree_path"] == "../app.worktrees/checkout-17"
    assert loops(run)[0]["worktree_path"] is None
    assert "/srv/" not in json.dumps([*loops(run), *sessions(run)])


def test_recoveries_count_only_what_the_story_outlived() -> None:
    """A silence or spiral that the story outlived is a recovery; the one that ended it is not."""
    story = StoryId("a")
    events = [started("a")]
    for attempt in (1, 2):
        events += working("a", attempt, attempt=attempt)
        events.append(event(attempt + 0.3, ev.StallSeen(story_id=story, session_id="x", seconds=60)))
        spiral = ev.SpiralSeen(story_id=story, reason="circles", retries=attempt == 1)
        events.append(event(attempt + 0.4, spiral))
        events.append(session_ended("a", attempt + 0.5, attempt=attempt, outcome="stalled"))
    switch = {"name": "spiral", "detail": "twice", "hint": "look"}
    over = ev.StoryFinished(story_id=story, verdict="stopped", reason="twice", kill_switch=switch)
    events.append(event(9, over))
    record = loops(snapshot(events))[0]
    assert (record["stall_recovery_count"], record["spiral_recovery_count"]) == (1, 1)
    assert record["iterations_completed"] == 0


def test_records_of_one_second_are_unique_and_join_both_ways() -> None:
    """Ten stories started in one second: run, story and session records find each other."""
    names = [f"s{number}" for number in range(10)]
    run = snapshot([started(*names), *(item for name in names for item in working(name, 1))])
    *stories, whole = loops(run)
    ids = [record["autopilot_run_id"] for record in [*stories, whole]]
    assert len(set(ids)) == 11
    assert whole["child_run_ids"] == ids[:-1]
    assert {record["parent_run_id"] for record in stories} == {whole["autopilot_run_id"]}
    lines = sessions(run)
    assert [line["autopilot_run_id"] for line in lines] == ids[:-1]
    assert [line["session_id"] for line in lines] == whole["sessions"]


WRITER = """
import sys
from pathlib import Path
from runner.records.telemetry import SESSION_KEY, upsert
for number in range(100):
    record = {"session_id": f"{sys.argv[2]}-{number}", "text": "x" * 300}
    upsert(Path(sys.argv[1]), [record], SESSION_KEY)
"""


def test_eight_processes_write_eight_hundred_lines(tmp_path: Path) -> None:
    """Acceptance 65: eight processes write in parallel and no line is lost, beside a truncated one."""
    path = tmp_path / "sessions.jsonl"
    path.write_bytes(b'{"session_id": "torn')
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)]) for number in range(8)
    ]
    assert [writer.wait() for writer in writers] == [0] * 8
    torn, *lines = path.read_bytes().splitlines()
    assert torn == b'{"session_id": "torn'
    ids = [json.loads(line)["session_id"] for line in lines]
    assert sorted(ids) == sorted(f"{writer}-{number}" for writer in range(8) for number in range(100))


def test_a_line_that_comes_meanwhile_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program that appends without the lock, while we write, finds its line again."""
    path = tmp_path / "sessions.jsonl"
    path.write_bytes(b'{"session_id": "old"}\n')
    pending, flush = [b'{"session_id": "theirs"}\n'], os.fsync

    def flush_late(number: int) -> None:
        if pending:
            with path.open("ab") as file:
                file.write(pending.pop())
        flush(number)

    monkeypatch.setattr(os, "fsync", flush_late)
    telemetry.upsert(path, [{"session_id": "ours"}], SESSION_KEY)
    assert [json.loads(line)["session_id"] for line in path.read_text().splitlines()] == [
        "old",
        "theirs",
        "ours",
    ]


def test_upsert_twice_is_upsert_once(tmp_path: Path) -> None:
    """Writing the same run again changes no byte."""
    path = tmp_path / "autopilot.jsonl"
    run = snapshot(ended_events())
    telemetry.upsert(path, loops(run), LOOP_KEY)
    first = path.read_bytes()
    telemetry.upsert(path, loops(run), LOOP_KEY)
    assert path.read_bytes() == first
    assert len(first.splitlines()) == 4


def test_a_file_without_records_gets_no_empty_line(tmp_path: Path) -> None:
    """A run that came to no session leaves an empty file; the next one writes only lines of JSON."""
    path = tmp_path / "sessions.jsonl"
    telemetry.upsert(path, [], SESSION_KEY)
    telemetry.upsert(path, [{"session_id": "ours"}], SESSION_KEY)
    assert path.read_bytes() == b'{"session_id":"ours"}\n'


def test_upsert_replaces_a_run_that_continued(tmp_path: Path) -> None:
    """After a resume each story still has one line, the new one, in its old place."""
    path = tmp_path / "autopilot.jsonl"
    other = RunId("20260102-130000-cd34")
    telemetry.upsert(path, loops(snapshot(mixed_events())), LOOP_KEY)
    telemetry.upsert(path, loops(snapshot(ended_events(other), other)), LOOP_KEY)
    retried = ev.StoryFinished(story_id=StoryId("checkout-17"), verdict="done", reason="")
    telemetry.upsert(path, loops(snapshot([*mixed_events(), event(99, retried)])), LOOP_KEY)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    keys = [(line["autopilot_run_id"], line["kind"]) for line in lines]
    assert len(keys) == len(set(keys)) == 11
    assert keys[1] == (f"{RUN}/checkout-17", "story")
    assert lines[1]["verdict"] == "done"


FOREIGN = (
    b"[" * 100_000 + b"\n"
    b'{"session_id": "by-hand",   "unknown": [1, 2.50, "\xc3\xa9"], "autopilot_run_id": null}\n'
    b"this line is torn {\n"
    b"\n"
    b'["a list"]\n'
    b"\xff\xfe not utf-8 \r in the middle\n"
    b'{"session_id": "no newline at the end"}'
)


def test_lines_of_others_stay_byte_for_byte(tmp_path: Path) -> None:
    """Acceptance 65: unknown fields, odd spacing and malformed lines of other writers are kept."""
    path = tmp_path / "sessions.jsonl"
    path.write_bytes(FOREIGN)
    records = [{"session_id": "ours", "status": "ok"}]
    for _ in range(2):
        telemetry.upsert(path, records, SESSION_KEY)
    written = path.read_bytes()
    assert written.startswith(FOREIGN + b"\n")
    ours = written.removeprefix(FOREIGN + b"\n").splitlines()
    assert [json.loads(line) for line in ours] == records


def test_fields_that_others_added_to_our_line_are_kept(tmp_path: Path) -> None:
    """A tool that annotated our record finds its field again."""
    path = tmp_path / "sessions.jsonl"
    path.write_text('{"session_id":"ours","status":"running","rating":5}\n')
    telemetry.upsert(path, [{"session_id": "ours", "status": "ok"}], SESSION_KEY)
    assert json.loads(path.read_text()) == {"session_id": "ours", "status": "ok", "rating": 5}


KILLED = """
import os, sys
from pathlib import Path
from runner.records import telemetry
point = sys.argv[2]
def die(*arguments): os._exit(9)
if point == "before-fsync": os.fsync = die
if point == "before-rename": Path.replace = die
telemetry.upsert(Path(sys.argv[1]), [{"session_id": "new", "text": "x" * 100_000}], ("session_id",))
"""


@pytest.mark.parametrize("point", ["before-fsync", "before-rename", "never"])
def test_kill_during_a_write_leaves_old_or_new(tmp_path: Path, point: str) -> None:
    """A writer that dies half-way leaves the old file, and the next writer is not hindered."""
    path = tmp_path / "sessions.jsonl"
    telemetry.upsert(path, [{"session_id": "old"}], SESSION_KEY)
    old = path.read_bytes()
    subprocess.run([sys.executable, "-c", KILLED, str(path), point], check=False, timeout=30)
    assert (path.read_bytes() == old) is (point != "never")
    telemetry.upsert(path, [{"session_id": "next"}], SESSION_KEY)
    ids = [json.loads(line)["session_id"] for line in path.read_text().splitlines()]
    assert ids == ["old", *(["new"] if point == "never" else []), "next"]
    assert not path.with_name(".sessions.jsonl.tmp").exists()


def test_unwritable_place_is_a_clear_error(tmp_path: Path) -> None:
    """A file in the folder's place is named, with a hint, not shown as a traceback."""
    (tmp_path / "metrics").write_text("in the way")
    with pytest.raises(SystemFaultError, match=r"cannot write the records in .*autopilot\.jsonl") as failure:
        telemetry.upsert(tmp_path / "metrics" / "autopilot.jsonl", [{"session_id": "a"}], SESSION_KEY)
    assert "journal is not affected" in failure.value.hint

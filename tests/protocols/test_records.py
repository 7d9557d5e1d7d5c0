"""Records for others: what runs write passes the schema, and what others wrote is read."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import run, started, wait_until, write_story, writes
from tests.protocols.session_schema import flaws

FLOW = """
[[steps]]
number = "1"
name = "Draft"
prompt = "draft it"

[[steps]]
number = "2"
name = "Write"
prompt = "write it"
"""


def _records(repo: Path, name: str) -> list[dict[str, Any]]:
    path = repo / ".orchestrator" / "metrics" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.protocol("004.40")
def test_every_session_record_passes_the_schema(repo: Path, tmp_path: Path) -> None:
    """Quick, flow, failed and stopped ones, of each class of modes, and whatever a session reported."""
    report = {
        "status": "done",
        "agent_summary": {"complete": 2},
        "waves": [{"agents": 2}, "odd", {"wave": 0}],
    }
    written = f"echo '{json.dumps(report)}' > $AUTOPILOT_RESULT_FILE"
    (repo / "flows").mkdir()
    (repo / "flows" / "short.toml").write_text(FLOW)
    write_story(repo, "alone", command=writes("alone.txt"), mode="housekeeping")
    write_story(
        repo, "reports", command=f"{writes('r.txt')}; {written}", verify=["test -s r.txt"], mode="deep"
    )
    write_story(repo, "fails", command="exit 3", max_attempts=2)
    write_story(repo, "flows", command="date +%N >> f.txt", flow="short")
    here = tmp_path / "here"
    write_story(repo, "waits", command=f"touch {here}; sleep 60", depends_on=["alone", "reports", "flows"])
    with started(repo, "run", "--json", "--grace-seconds=1") as program:
        wait_until(here.exists, what="the last story works")
        wait_until(lambda: "gave up after 2 attempts" in program.err, what="one has failed")
        program.send_and_await(signal.SIGINT, "stopping:")
        program.send(signal.SIGINT)
        ran = program.finish()
    assert ran.code == 130, ran.err
    records = {record["session_id"].split("/", 1)[1]: record for record in _records(repo, "sessions")}
    assert {name: found for name, record in records.items() if (found := flaws(record))} == {}
    types = {name.partition("/")[0]: record["session_type"] for name, record in records.items()}
    assert types == {
        "alone": "housekeeping",
        "reports": "deep",
        "fails": "feature",
        "flows": "feature",
        "waits": "feature",
    }
    reported = records["reports/01-implement-1"]
    assert reported["waves"] == [
        {"agents": 2, "wave": 1, "role": "Implement"},
        {"wave": 2, "role": "Implement", "reported": "odd"},
        {"wave": 3, "role": "Implement"},
    ]
    assert (reported["total_agents"], reported["mode"], reported["outcome"]) == (2, "deep", "ok")
    assert "agent_summary" not in reported["assumed"]
    assert records["fails/02-implement-2"]["agent_summary"]["failed"] == 1
    assert (records["waits/01-implement-1"]["status"], records["waits/01-implement-1"]["outcome"]) == (
        "abandoned",
        "stopped",
    )


@pytest.mark.protocol("004.43")
def test_history_reads_the_records_of_other_writers(repo: Path) -> None:
    """One loop is one run; fields and versions nobody knows here are tolerated, and kept byte for byte."""
    loop = {
        "schema_version": 1,
        "autopilot_run_id": "main-2026-04-25-1200-autopilot",
        "started_at": "2026-04-25T12:00:00.000Z",
        "completed_at": "2026-04-25T13:00:00.000Z",
        "duration_seconds": 3600,
        "iterations_completed": 3,
        "kill_switch": "spiral",
        "kill_switch_detail": "wave 2",
        "sessions": ["s1", "s2", "s3"],
        "total_tokens_used": 1200,
        "blocked_by_issue": None,
    }
    coordinator = {
        "schema_version": 1,
        "kind": "multi-story-coordinator",
        "run_id": "multi-1",
        "started_at": "2026-04-26T12:00:00.000Z",
        "ended_at": "2026-04-26T12:30:00.000Z",
        "child_run_ids": ["child-1"],
        "stop_reason": "backlog-empty",
        "completed_count": 1,
        "failed_count": 0,
    }
    child = {**loop, "autopilot_run_id": "child-1", "parent_run_id": "multi-1"}
    newer = {**loop, "schema_version": 9, "autopilot_run_id": "from-the-future", "weather": {"rain": True}}
    unknown = {"schema_version": 9, "kind": "run", "autopilot_run_id": "stub", "begun": 1777}
    path = repo / ".orchestrator" / "metrics" / "autopilot.jsonl"
    path.parent.mkdir(parents=True)
    theirs = "".join(json.dumps(one) + "\n" for one in (loop, coordinator, child, newer, unknown))
    path.write_text(theirs)
    write_story(repo, "a", command=writes("a.txt"))
    assert run(repo).code == 0
    assert path.read_text().startswith(theirs)
    data = run(repo, "history", "--json").data
    rows = {row["run_id"]: row for row in data["runs"]}
    assert len(rows) == 4, "the child belongs to its run, and what says too little is no row"
    assert {"main-2026-04-25-1200-autopilot", "multi-1", "from-the-future"} < set(rows)
    theirs_row = rows["main-2026-04-25-1200-autopilot"]
    assert (theirs_row["sessions"], theirs_row["stop_reason"]) == (3, "spiral")
    assert (theirs_row["tokens"], theirs_row["duration_seconds"]) == (1200, 3600)
    assert (rows["multi-1"]["counts"]["done"], rows["multi-1"]["duration_seconds"]) == (1, 1800)
    assert data["summary"]["kill_switches"] == {"spiral": 2}
    text = run(repo, "history").out
    assert "3 sessions" in text
    assert "stub" not in text

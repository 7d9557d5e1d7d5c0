"""The real `history`, on real runs and on what others left in the file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.program import run, write_story, writes
from tests.conftest import Templates, begin_repository, git

SPENT = {"usage": {"input_tokens": 1000, "output_tokens": 500, "cost_usd": 0.25}}


@pytest.fixture
def past(tmp_path: Path, templates: Templates) -> Path:
    """Return a repository with two runs: one of three stories with a failure, one of a single story."""
    return templates.copy(tmp_path / "repo", "two runs", _make_past)


def _make_past(repo: Path) -> None:
    begin_repository(repo)
    report = f"echo '{json.dumps(SPENT)}' > $AUTOPILOT_RESULT_FILE"
    write_story(repo, "a", command=f"{writes('a.txt')}; {report}")
    write_story(repo, "b", command="exit 1")
    write_story(repo, "c", command="true", depends_on=["b"])
    assert run(repo).code == 4
    assert run(repo, "--only", "a", "--again").code == 0


def test_history_lists_runs_and_adds_them_up(past: Path) -> None:
    """Newest first: when, how long, what became of the stories, what it cost; below, all together."""
    ran = run(past, "history", "--json")
    assert ran.code == 0
    newest, oldest = ran.data["runs"]
    records = [
        json.loads(line)
        for line in (past / ".orchestrator" / "metrics" / "autopilot.jsonl").read_text().splitlines()
    ]
    ids = [record["autopilot_run_id"] for record in records if record["kind"] == "run"]
    assert [oldest["run_id"], newest["run_id"]] == ids
    assert {name: number for name, number in oldest["counts"].items() if number} == {
        "done": 1,
        "failed": 1,
        "skipped": 1,
    }
    assert (oldest["success_rate"], newest["success_rate"]) == (0.5, 1.0)
    assert (oldest["tokens"], oldest["cost_usd"], oldest["stop_reason"]) == (1500, 0.25, "backlog-done")
    assert oldest["started_at"] < newest["started_at"]
    assert oldest["ended_at"].endswith("Z")
    assert oldest["duration_seconds"] > 0
    total = ran.data["summary"]
    assert (total["runs"], total["stories_started"], total["stories_done"]) == (2, 3, 2)
    assert (total["success_rate"], total["tokens"], total["cost_usd"]) == (0.6667, 3000, 0.5)
    assert total["median_story_seconds"] > 0
    assert total["kill_switches"] == {}


def test_history_for_people(past: Path) -> None:
    """The same as a table, with a summary in words."""
    text = run(past, "history").out
    head, first, second, empty, *rest = text.splitlines()
    assert head.split() == ["RUN", "STARTED", "TIME", "SUCCESS", "TOKENS", "COST", "ENDED", "BY", "STORIES"]
    for part in ("1 done", "100 %", "1,500", "$0.25", "backlog-done"):
        assert part in first
    assert "1 done, 1 failed, 1 skipped" in second
    assert empty == ""
    assert rest[0] == "2 runs: 2 of 3 stories done (67 %)"
    assert rest[1].startswith("median time per story ")
    assert rest[1].endswith(" · 3,000 tokens · $0.50")
    assert rest[2:] == ["kill-switches: none"]


def test_history_shows_no_more_than_the_limit(past: Path) -> None:
    """The newest are shown, the summary is of these, and it says how many there are besides."""
    data = run(past, "history", "--limit", "1", "--json").data
    assert [row["counts"]["done"] for row in data["runs"]] == [1]
    assert (data["summary"]["runs"], data["summary"]["success_rate"]) == (1, 1.0)
    assert "1 older run not shown" in run(past, "history", "--limit=1").out


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1.5"])
def test_a_limit_that_is_none_is_refused(past: Path, limit: str) -> None:
    """Acceptance 3: it says what is wrong and what is wanted."""
    ran = run(past, "history", f"--limit={limit}", "--json")
    assert ran.code == 1
    assert "whole number above 0" in ran.document["error"]["message"]


def test_history_of_one_story(past: Path) -> None:
    """One story over all runs that had it."""
    data = run(past, "history", "--story", "a", "--json").data
    assert data["story_id"] == "a"
    assert [(row["verdict"], row["sessions"], row["tokens"]) for row in data["loops"]] == [
        ("done", 1, 1500)
    ] * 2
    assert data["summary"]["runs"] == 2
    only = run(past, "history", "--story", "b", "--json").data
    assert [(row["verdict"], row["sessions"]) for row in only["loops"]] == [("failed", 4)]
    assert "1 run: 0 of 1 story done (0 %)" in run(past, "history", "--story", "b").out


def test_a_story_that_no_run_had_is_an_error(past: Path) -> None:
    """It is never silently nothing, and the nearest name is suggested."""
    write_story(past, "checkout-17", command="true")
    run(past, "--only", "checkout-17")
    ran = run(past, "history", "--story", "checkout-71")
    assert ran.code == 1
    assert "did you mean 'checkout-17'?" in ran.err


def test_a_kill_counts_and_a_limit_does_not(repo: Path) -> None:
    """`max-sessions-reached` is graceful; a budget that was crossed is not."""
    partial = '{"status": "partial", "usage": {"input_tokens": 9}}'
    write_story(repo, "a", command=f"echo x >> x; echo '{partial}' > $AUTOPILOT_RESULT_FILE")
    assert run(repo, "--max-sessions=2").code == 5
    assert run(repo, "history", "--json").data["summary"]["kill_switches"] == {}
    assert run(repo, "--token-budget=5").code == 2
    data = run(repo, "history", "--json").data
    assert data["summary"]["kill_switches"] == {"token-budget-exceeded": 1}
    assert [row["kill_switches"] for row in data["runs"]] == [{"token-budget-exceeded": 1}, {}]
    assert "kill-switches: token-budget-exceeded\n" in run(repo, "history").out


def test_history_before_the_first_run(repo: Path) -> None:
    """Nothing to show is no error."""
    ran = run(repo, "history")
    assert (ran.code, ran.out) == (0, "no finished runs in this repository yet\n")
    assert run(repo, "history", "--json").data["runs"] == []
    assert run(repo, "history", "--story", "a", "--json").data["loops"] == []
    assert not (repo / ".orchestrator").exists()


def test_lines_of_others_are_passed_over(past: Path) -> None:
    """Records of another program, torn lines and fields that we do not know change nothing."""
    before = run(past, "history").out
    path = past / ".orchestrator" / "metrics" / "autopilot.jsonl"
    ours = path.read_text().replace('"kind":"run"', '"kind":"run","rating":[5,{"by":"me"}]')
    foreign = (
        '{"schema_version": 1, "autopilot_run_id": "2026-01-01-other", "sessions": ["x"]}\n'
        '{"kind": "run", "autopilot_run_id": 7}\n'
        '{"kind": "story", "parent_run_id": null}\n'
        '["a list"]\n\n{"kind": "run", "autopilot_run_'
    )
    path.write_bytes(foreign.encode() + b"\xff\xfe\n" + ours.encode() + b'{"torn": ')
    assert run(past, "history").out == before


def test_history_from_a_linked_worktree(past: Path, tmp_path: Path) -> None:
    """The main checkout's records are shown wherever one stands."""
    git(past, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert run(tmp_path / "linked", "history").out == run(past, "history").out


def test_records_that_cannot_be_read_are_named(repo: Path) -> None:
    """A folder in the file's place is an error with a hint, not a traceback."""
    (repo / ".orchestrator" / "metrics" / "autopilot.jsonl").mkdir(parents=True)
    ran = run(repo, "history")
    assert ran.code == 2
    assert "cannot read the records in" in ran.err
    assert "autopilot.jsonl" in ran.err
    assert "hint:" in ran.err


def test_hostile_records_are_neutralised(repo: Path) -> None:
    """What stands in the file cannot drive the terminal of the one who looks."""
    path = repo / ".orchestrator" / "metrics" / "autopilot.jsonl"
    path.parent.mkdir(parents=True)
    record = {"kind": "run", "autopilot_run_id": "\x1b[2Jrun", "kill_switch": "\x1b]0;owned\x07"}
    path.write_text(json.dumps(record) + "\n")
    shown = run(repo, "history")
    assert shown.code == 0
    assert "\x1b" not in shown.out


@pytest.mark.parametrize("flags", [(), ("--json",), ("--story", "a")])
def test_history_loads_no_heavy_library(past: Path, flags: tuple[str, ...]) -> None:
    """Instant means: no trio, no GitPython, no pydantic, and no rich off a terminal."""
    script = (
        "import sys; from runner.cli.main import run_program;"
        f"code = run_program(['history', *{list(flags)!r}]);"
        "heavy = {'trio', 'git', 'pydantic', 'rich', 'psutil', 'yaml'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=past, capture_output=True, text=True, check=False
    )
    assert loaded.stderr == ""
    assert loaded.returncode == 0

"""Old runs go by age and size, with `gc --runs`; what may still be needed stays: by the real program."""

import sqlite3
from pathlib import Path

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.bench.bench_many_runs import repeat_run

RUNS = 30
DAY = 86_400


def _journal(repo: Path) -> Path:
    return repo / ".git" / "autopilot" / "journal.db"


def _past(repo: Path) -> list[str]:
    """Make thirty runs of forty days ago; return them, oldest first."""
    write_story(repo, "a", command="echo x > x.txt; head -c 100000 /dev/zero")
    commit_stories(repo)
    assert run(repo).code == 0
    repeat_run(repo, RUNS)
    with sqlite3.connect(_journal(repo)) as connection:
        connection.execute("UPDATE events SET at = at - ?", (40 * DAY,))
        names = [name for (name,) in connection.execute("SELECT DISTINCT run_id FROM events ORDER BY run_id")]
        for unfinished in (names[1], names[3]):
            connection.execute("DELETE FROM events WHERE run_id = ? AND kind = 'RunEnded'", (unfinished,))
        for name in names[1:]:
            logs = repo / ".git" / "autopilot" / "runs" / name / "a"
            logs.mkdir(parents=True)
            (logs / "1.log").write_bytes(b"x" * 10_000)
    connection.close()
    return names


def test_old_runs_go_and_history_still_shows_them(repo: Path) -> None:
    """Unfinished runs and the newest are kept; the journal shrinks; nothing goes without --apply."""
    names = _past(repo)
    before = _journal(repo).read_bytes()
    shown = run(repo, "gc", "--runs", "--json").data
    verdicts = {row["run_id"]: (row["verdict"], row["reason"]) for row in shown["runs"]}
    assert verdicts[names[0]] == ("removable", "older than 30 days")
    assert verdicts[names[1]] == ("kept", "it is not finished")
    assert verdicts[names[-1]] == ("kept", "it is among the newest 21")
    assert _journal(repo).read_bytes() == before, "it only shows"
    listed = run(repo, "gc", "--runs")
    assert "remove their logs and events with `autopilot-multi gc --runs --apply`" in listed.out
    applied = run(repo, "gc", "--runs", "--apply", "--json").data
    gone = [row["run_id"] for row in applied["runs"] if row["verdict"] == "removed"]
    assert gone == [names[0], names[2], *names[4:9]]
    assert applied["bytes_after"] < applied["bytes_before"] - 7 * 10_000
    assert not [name for name in gone if (repo / ".git" / "autopilot" / "runs" / name).exists()]
    assert _journal(repo).stat().st_size < len(before)
    assert len(run(repo, "history", "--limit", "100", "--json").data["runs"]) == RUNS
    assert run(repo, "status", names[1], "--json").code == 0
    assert run(repo, "status", gone[0]).code == 1
    assert "nothing to remove" in run(repo, "gc", "--runs").out
    assert run(repo, "--json").story("a")["status"] == "done", "the newest runs are remembered"


def test_the_oldest_go_when_all_together_are_too_large(repo: Path) -> None:
    """By size alone, the oldest first, and no more than is needed."""
    names = _past(repo)
    env = {"AUTOPILOT_MULTI_KEEP_RUNS_DAYS": "1000", "AUTOPILOT_MULTI_KEEP_RUNS_MB": "2000"}
    assert "nothing to remove" in run(repo, "gc", "--runs", env=env).out
    total = sum(row["bytes"] for row in run(repo, "gc", "--runs", "--json").data["runs"])
    env["AUTOPILOT_MULTI_KEEP_RUNS_MB"] = str((total - 20_000) / (1 << 20))
    rows = run(repo, "gc", "--runs", "--json", env=env).data["runs"]
    removable = [row["run_id"] for row in rows if row["verdict"] == "removable"]
    assert removable[0] == names[0]
    assert len(removable) < 4


def test_an_active_run_keeps_everything(repo: Path, tmp_path: Path) -> None:
    """Nothing is removed beside a run; its holder is named."""
    _past(repo)
    go, ready = tmp_path / "go", tmp_path / "ready"
    write_story(repo, "b", command=f"touch {ready}; until test -f {go}; do sleep 0.05; done; echo b > b")
    with started(repo, "run", "--json") as program:
        wait_until(ready.exists, what="the session runs")
        refused = run(repo, "gc", "--runs", "--apply", "--json")
        assert refused.document["error"]["code"] == "lease-held"
        go.touch()
        assert program.finish().code == 0

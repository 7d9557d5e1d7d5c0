"""`doctor --repair` after real crashes: it shows a plan, asks, repairs, and loses nothing."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.flow_stories import AUTODEV, story
from tests.acceptance.program import (
    commit_stories,
    processes_with,
    run,
    started,
    wait_until,
    write_story,
)
from tests.conftest import git


def _repairs(repo: Path, *flags: str) -> list[dict[str, Any]]:
    ran = run(repo, "doctor", "--repair", "--json", *flags)
    assert ran.code == 0, ran.out + ran.err
    rows: list[dict[str, Any]] = ran.data["repairs"]
    return rows


def test_processes_that_nobody_supervises_any_more_are_ended(repo: Path, tmp_path: Path) -> None:
    """A session that killed its keeper, the server and the coordinator: shown, ended with --yes, resumed."""
    marker, once = f"unsupervised-{tmp_path.name}-{os.getpid()}", tmp_path / "once"
    lease = repo / ".git" / "autopilot" / "lease.json"
    script = tmp_path / "work.sh"
    script.write_text(
        f"if ! test -f {once}; then touch {once}\n"
        "server=$(awk '/^PPid/ {print $2}' /proc/$PPID/status)\n"
        "run=$(awk '/^PPid/ {print $2}' /proc/$server/status)\n"
        f"(setsid sh -c 'sleep 300; : {marker}' &)\n"
        "kill -STOP $PPID $server; kill -9 $run $server $PPID\n"
        f"sleep 300; : {marker}\nfi\necho made > made.txt\n"
    )
    write_story(repo, "a", command=f"exec sh {script}")
    assert run(repo, "run", "--no-guard").code == -signal.SIGKILL
    left = processes_with(marker)
    assert left
    try:
        plan = _repairs(repo)
        assert processes_with(marker) == left, "it only shows"
        assert lease.exists()
        assert next(row["command"] for row in plan if row["command"]).startswith("autopilot-multi resume ")
        assert {f"process {pid} of run" in json.dumps(plan) for pid in left} == {True}
        done = _repairs(repo, "--yes")
        assert f"{left[0]} ended" in [row["done"] for row in done]
        assert not processes_with(marker)
    finally:
        for pid in processes_with(marker):
            os.kill(pid, signal.SIGKILL)
    assert not lease.exists()
    assert run(repo, "resume", "--json").story("a")["status"] == "done"
    assert run(repo, "doctor", "--repair").out.strip() == "nothing to repair"


@pytest.mark.usefixtures("memory")
def test_locks_worktrees_and_torn_files_are_repaired(repo: Path) -> None:
    """Everything that is in the way is kept somewhere; afterwards the run continues."""
    story(repo, "a", "ask:Research")
    write_story(repo, "b", command="false", max_attempts=1)
    commit_stories(repo)
    ran = run(repo, "--json")
    kept, gone = (Path(ran.story(name)["workspace"]) for name in "ab")
    state = kept / "_docs" / "stories" / "a" / AUTODEV
    good = state.read_text()
    state.write_bytes(b"\x00\xff torn \x00")
    shutil.rmtree(gone)
    own = repo / ".git" / "autopilot"
    (own / "autopilot-a.index.lock").write_text("half an index")
    lock = Path(git(kept, "rev-parse", "--absolute-git-dir").strip()) / "index.lock"
    lock.write_text("half another")
    (own / "lease.json").write_bytes(b"\xff torn")
    shown = run(repo, "doctor", "--repair")
    assert "nothing was changed; check the plan, then add --yes" in shown.err
    assert lock.exists()
    done = {row["what"]: row["done"] for row in _repairs(repo, "--yes")}
    assert all(done.values()), done
    assert state.read_text() == good
    assert state.with_name(f"{AUTODEV}.unreadable-1").read_bytes() == b"\x00\xff torn \x00"
    assert not lock.exists()
    assert sorted(path.read_text() for path in (own / "aside").iterdir()) == ["half an index", "half another"]
    assert [path.read_bytes() for path in own.glob("lease.json.corrupt-*")] == [b"\xff torn"]
    assert str(gone) not in git(repo, "worktree", "list")
    assert git(repo, "branch", "--list", "autopilot/*").split()[-1] == "autopilot/b"
    assert run(repo, "doctor", "--repair").out.strip() == "nothing to repair"
    assert run(repo, "decide", "a", "A").code == 0


def test_a_damaged_journal_is_kept_and_an_active_run_is_left_alone(repo: Path, tmp_path: Path) -> None:
    """The journal begins again beside the damaged one; beside a run nothing is repaired."""
    write_story(repo, "a", command="echo a > a")
    assert run(repo).code == 0
    journal = repo / ".git" / "autopilot" / "journal.db"
    broken = b"garbage" + journal.read_bytes()[7:]
    journal.write_bytes(broken)
    (row,) = _repairs(repo, "--yes")
    assert "journal.db.corrupt-1" in row["done"]
    assert (journal.parent / "journal.db.corrupt-1").read_bytes() == broken
    go, ready = tmp_path / "go", tmp_path / "ready"
    write_story(repo, "b", command=f"touch {ready}; until test -f {go}; do sleep 0.05; done; echo b > b")
    with started(repo, "run", "--json") as program:
        wait_until(ready.exists, what="the session runs")
        refused = run(repo, "doctor", "--repair", "--yes", "--json")
        assert refused.document["error"]["code"] == "lease-held"
        go.touch()
        assert program.finish().code == 0

"""How a run is stopped: Ctrl-C, SIGTERM, and `stop` from another terminal; nothing is left running."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.program import (
    LIMIT,
    Ran,
    on_terminal,
    processes_with,
    run,
    started,
    wait_until,
    write_story,
    writes,
)
from tests.conftest import git


def _records(repo: Path) -> list[dict[str, object]]:
    path = repo / ".orchestrator" / "metrics" / "autopilot.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def _check_aborted(repo: Path, ran: Ran, marker: str, by: str = "stopped by you (Ctrl-C)") -> None:
    """Check the part of acceptance 39 that every way to stop has in common; `by` names what it was."""
    assert ran.data["kill_switch"]["name"] == "user-abort"
    assert ran.data["kill_switch"]["detail"] == by
    assert {story["reason"] for story in ran.data["stories"] if story["status"] == "stopped"} <= {by}
    assert not processes_with(marker)
    (whole,) = [record for record in _records(repo) if record["kind"] == "run"]
    assert whole["kill_switch"] == "user-abort"
    assert run(repo, "status", "--json").data["state"] == "ended"


def _waiting_story(repo: Path, marker: str, *, seconds: float, trap: str = "") -> Path:
    """Write a story whose session says when it runs, and is found by its marker."""
    ready = repo.parent / f"ready-{marker}"
    script = f"{trap}touch {ready}; sh -c 'sleep {seconds} # {marker}'; echo x > x.txt"
    write_story(repo, "a", command=script)
    write_story(repo, "b", command=writes("b.txt"), depends_on=["a"])
    return ready


def test_ctrl_c_once_lets_the_session_reach_its_end(repo: Path, tmp_path: Path) -> None:
    """Acceptance 39: one Ctrl-C starts nothing new; the running session ends by itself; exit 130."""
    go = tmp_path / "go"
    ready = tmp_path / "ready"
    script = f"touch {ready}; until test -f {go}; do sleep 0.05; done; echo x > x.txt"
    write_story(repo, "a", command=script, verify=["test -s x.txt"])
    write_story(repo, "b", command=writes("b.txt"), depends_on=["a"])
    with started(repo, "run", "--json") as program:
        wait_until(ready.exists, what="the session runs")
        program.send_and_await(signal.SIGINT, "stopping:")
        assert run(repo, "status", "--json").data["state"] == "running"
        go.touch()
        ran = program.finish()
    assert ran.code == 130
    assert ran.story("a")["status"] == "stopped"
    assert ran.story("a")["commits"] == 1, "the session reached its end and its work is kept"
    assert ran.story("b")["status"] == "stopped"
    _check_aborted(repo, ran, str(ready))
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0
    assert resumed.story("a")["sessions"] == 2, "only the verify command was left; the work is not repeated"
    assert resumed.story("b")["status"] == "done"


def test_ctrl_c_twice_ends_the_sessions(repo: Path) -> None:
    """Acceptance 39: the second Ctrl-C ends the session's whole tree; exit 130."""
    marker = "twice-7319"
    ready = _waiting_story(repo, marker, seconds=60)
    with started(repo, "run", "--json", "--grace-seconds=2") as program:
        wait_until(ready.exists, what="the session runs")
        program.send_and_await(signal.SIGINT, "stopping:")
        program.send(signal.SIGINT)
        ran = program.finish()
    assert ran.code == 130
    _check_aborted(repo, ran, marker)
    assert ran.err.count("Ctrl-C again") == 2, "each Ctrl-C says what the next one would do"


@pytest.mark.parametrize(
    ("sent", "code", "by"),
    [
        (signal.SIGTERM, 143, "ended by another program (SIGTERM)"),
        (signal.SIGHUP, 129, "the terminal was closed (SIGHUP)"),
    ],
)
def test_a_signal_ends_the_sessions(repo: Path, sent: signal.Signals, code: int, by: str) -> None:
    """Acceptance 39: SIGTERM, or a closed terminal, ends the sessions with their grace, and is named."""
    marker = f"term-7320-{code}"
    ready = _waiting_story(repo, marker, seconds=60)
    with started(repo, "run", "--json", "--grace-seconds=2") as program:
        wait_until(ready.exists, what="the session runs")
        program.send(sent)
        ran = program.finish()
    assert ran.code == code
    _check_aborted(repo, ran, marker, by)
    assert f"stopping: {by}; sessions have a grace period" in ran.err


def test_a_third_ctrl_c_does_not_wait_for_the_grace(repo: Path) -> None:
    """Acceptance 39: a session that ignores SIGTERM is dead after the third Ctrl-C, long before its grace."""
    marker = "third-7321"
    ready = _waiting_story(repo, marker, seconds=60, trap="trap '' TERM INT; ")
    with started(repo, "run", "--json", "--grace-seconds=300") as program:
        wait_until(ready.exists, what="the session runs")
        program.send_and_await(signal.SIGINT, "stopping:")
        program.send_and_await(signal.SIGINT, "stopping:")
        program.send(signal.SIGINT)
        ran = program.finish()
    assert ran.code == 130
    _check_aborted(repo, ran, marker)


@pytest.mark.parametrize("now", [False, True])
def test_stop_from_another_terminal(repo: Path, tmp_path: Path, now: bool) -> None:  # noqa: FBT001  a parameter
    """`stop` ends the run at the session's end, `stop --now` ends the session."""
    go, ready = tmp_path / "go", tmp_path / "ready"
    marker = f"stop-{now}-7322"
    script = f"touch {ready}; until test -f {go}; do sh -c 'sleep 0.05 # {marker}'; done; echo x > x.txt"
    write_story(repo, "a", command=script)
    with started(repo, "run", "--json", "--grace-seconds=2") as program:
        wait_until(ready.exists, what="the session runs")
        assert run(repo, "stop", *(["--now"] if now else [])).code == 0
        if not now:
            wait_until(lambda: run(repo, "status", "--json").data["kill_switch"], what="the stop is seen")
            go.touch()
        ran = program.finish()
    assert ran.code == 2
    assert ran.story("a")["commits"] == (0 if now else 1)
    _check_aborted(repo, ran, marker, f"stopped by `autopilot-multi stop{' --now' * now}`")


def test_stop_of_one_story_leaves_the_others(repo: Path, tmp_path: Path) -> None:
    """`stop STORY --now` ends that story alone."""
    ready = tmp_path / "ready"
    write_story(repo, "a", command=f"touch {ready}; sleep 60")
    write_story(repo, "b", command=f"until test -f {tmp_path}/go; do sleep 0.05; done; echo x > b.txt")
    with started(repo, "run", "--json", "--grace-seconds=2") as program:
        wait_until(ready.exists, what="the session runs")
        assert run(repo, "stop", "a", "--now").code == 0
        wait_until(
            lambda: run(repo, "status", "--json").data["counts"]["stopped"] == 1, what="story a is stopped"
        )
        (tmp_path / "go").touch()
        ran = program.finish()
    assert ran.story("a")["status"] == "stopped"
    assert ran.story("a")["reason"] == "stopped by `autopilot-multi stop --now`"
    assert ran.story("b")["status"] == "done"


def test_stop_of_a_story_that_waits_for_its_turn(repo: Path, tmp_path: Path) -> None:
    """`stop STORY` of a queued one is its verdict at once: nothing is started, and `resume` takes it up."""
    write_story(repo, "a", command=f"until test -f {tmp_path}/go; do sleep 0.05; done; echo x > a.txt")
    write_story(repo, "b", command=writes("b.txt"))
    with started(repo, "run", "--json", "--max-stories=1") as program:
        wait_until(lambda: "session 1 started" in program.err, what="the first session runs")
        assert run(repo, "stop", "b").code == 0
        wait_until(lambda: "b  stopped" in program.err, what="story b is stopped while the other one works")
        (tmp_path / "go").touch()
        ran = program.finish()
    assert (ran.story("a")["status"], ran.story("b")["status"]) == ("done", "stopped")
    assert ran.story("b")["started_at"] is None
    assert "autopilot/b" not in git(repo, "for-each-ref")
    resumed = run(repo, "resume", "--json")
    assert resumed.story("b")["status"] == "done", resumed.err


def test_stop_without_a_run_says_so(repo: Path) -> None:
    """There is nothing to stop: exit 1 and a hint."""
    ran = run(repo, "stop")
    assert ran.code == 1
    assert "hint:" in ran.err


def test_the_dashboard_says_what_the_next_ctrl_c_would_do(repo: Path) -> None:
    """Acceptance 39: after the first Ctrl-C the foot of the screen tells of the second one."""
    ready = _waiting_story(repo, "footed", seconds=60)
    with on_terminal(repo, "--grace-seconds=1") as screen:
        wait_until(ready.exists, what="the session runs")
        screen.await_text("Ctrl-C: start nothing new, let running sessions end")
        screen.process.send_signal(signal.SIGINT)
        screen.await_text("Ctrl-C: ask the running sessions to end")
        screen.process.send_signal(signal.SIGINT)
        assert screen.process.wait(LIMIT) == 130


LATE = """
import os, signal, threading
from runner.run import closing

expire = closing.expire_removed

def interrupted(repository):
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    expire(repository)

closing.expire_removed = interrupted
from runner.__main__ import main
main()
"""


def test_a_ctrl_c_when_all_is_done_is_no_crash(repo: Path) -> None:
    """While old removed worktrees are deleted at the end nobody listens any more; what was done is done."""
    write_story(repo, "a", command=writes("x.txt"))
    late = [sys.executable, "-c", LATE, "run", "--json"]
    done = subprocess.run(late, cwd=repo, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 130, done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "interrupted"
    assert "Traceback" not in done.stderr
    assert run(repo, "status", "--json").story("a")["status"] == "done"


def test_nohup_lets_a_run_outlive_its_terminal(repo: Path, tmp_path: Path) -> None:
    """A program that was told to ignore SIGHUP ignores it; the story reaches its end."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    write_story(repo, "a", command=f"touch {ready}; until test -f {go}; do sleep 0.05; done; echo x > x.txt")
    argv = ["nohup", sys.executable, "-m", "runner", "run", "--json"]
    with subprocess.Popen(
        argv, cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        wait_until(ready.exists, what="the session runs")
        program.send_signal(signal.SIGHUP)
        go.touch()
        out, _ = program.communicate(timeout=LIMIT)
    assert program.returncode == 0
    assert json.loads(out)["data"]["counts"]["done"] == 1

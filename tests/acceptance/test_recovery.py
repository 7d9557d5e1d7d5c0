"""A run that was killed, a repository that is taken, files that are broken: by the real program."""

import json
import os
import random
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.program import processes_with, run, started, wait_until, write_story, writes
from tests.chaos.killing import play, prepare


@pytest.mark.parametrize("number", range(5))
def test_a_killed_coordinator_loses_nothing_and_repeats_nothing(repo: Path, number: int) -> None:
    """Acceptance 67, 68: SIGKILL at a random moment, then resume; a separate checker looks at the rest."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201  a failure must be replayable
    play(prepare(repo, str(number)), seed, kills=1)


def _running(repo: Path, tmp_path: Path) -> tuple[Path, Path]:
    go, ready = tmp_path / "go", tmp_path / "ready"
    script = f"touch {ready}; until test -f {go}; do sleep 0.05; done; echo x > x.txt"
    write_story(repo, "a", command=script)
    return go, ready


def test_a_second_coordinator_is_refused(repo: Path, tmp_path: Path) -> None:
    """Acceptance 69: also through a symbolic link and from a linked worktree; the holder is unaffected."""
    go, ready = _running(repo, tmp_path)
    link = tmp_path / "link"
    link.symlink_to(repo)
    subprocess.run(["git", "worktree", "add", "-q", str(tmp_path / "linked")], cwd=repo, check=True)
    write_story(tmp_path / "linked", "a", command="true")
    with started(repo, "run", "--json") as program:
        wait_until(ready.exists, what="the session runs")
        for place in (repo, link, tmp_path / "linked"):
            refused = run(place, "run", "--json")
            assert refused.code == 1
            assert refused.document["error"]["code"] == "lease-held"
            assert str(program.pid) in refused.document["error"]["message"]
        go.touch()
        assert program.finish().code == 0


def test_a_stale_lease_is_taken_over(repo: Path) -> None:
    """Acceptance 70: its pid belongs to another process now, which is left alone."""
    with subprocess.Popen(["sleep", "60"]) as bystander:
        home = repo / ".git" / "autopilot"
        home.mkdir()
        stale = {
            "boot_id": "gone",
            "pid": bystander.pid,
            "start_ticks": 1,
            "host": "elsewhere",
            "run_id": "old",
            "since": 1.0,
        }
        (home / "lease.json").write_text(json.dumps(stale))
        write_story(repo, "a", command=writes("a.txt"))
        assert run(repo).code == 0
        assert bystander.poll() is None
        bystander.kill()


def test_a_corrupt_lease_is_set_aside_and_reported(repo: Path) -> None:
    """Acceptance 71: it never means "active for ever"."""
    home = repo / ".git" / "autopilot"
    home.mkdir()
    (home / "lease.json").write_bytes(b"\x00\xff not json")
    write_story(repo, "a", command=writes("a.txt"))
    ran = run(repo)
    assert ran.code == 0
    assert "was renamed to" in ran.err
    assert [path.read_bytes() for path in home.glob("lease.json.corrupt-*")] == [b"\x00\xff not json"]


def test_a_corrupt_journal_is_set_aside_and_reported(repo: Path) -> None:
    """Acceptance 71: it is never silently emptied."""
    write_story(repo, "a", command=writes("a.txt"))
    assert run(repo).code == 0
    journal = repo / ".git" / "autopilot" / "journal.db"
    broken = b"garbage" + journal.read_bytes()[7:]
    journal.write_bytes(broken)
    shown = run(repo, "status")
    assert shown.code == 2
    assert "journal" in shown.err
    assert journal.read_bytes() == broken
    ran = run(repo)
    assert ran.code == 0
    assert "journal.db.corrupt-1" in ran.err
    (aside,) = journal.parent.glob("journal.db.corrupt-*")
    assert aside.read_bytes() == broken


def test_a_journal_of_a_newer_version_is_refused_and_untouched(repo: Path) -> None:
    """Acceptance 71: what a newer version wrote is not read and not changed."""
    write_story(repo, "a", command=writes("a.txt"))
    assert run(repo).code == 0
    journal = repo / ".git" / "autopilot" / "journal.db"
    with sqlite3.connect(journal) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = journal.read_bytes()
    ran = run(repo, "--again")
    assert ran.code == 2
    assert "newer" in ran.err
    assert journal.read_bytes() == before


def test_a_damaged_story_of_a_plan_is_named(repo: Path) -> None:
    """A flipped bit in the name of a key: what can be shown is shown, and the story is named."""
    write_story(repo, "a", command="exit 1", max_attempts=1)
    assert run(repo).code == 3
    with closing(sqlite3.connect(repo / ".git" / "autopilot" / "journal.db")) as journal, journal:
        journal.execute(
            """UPDATE events SET data = replace(data, '"prompt"', '"pro}pt"') WHERE kind = 'RunStarted'"""
        )
    assert run(repo, "status").code == 0
    ran = run(repo, "resume", "--retry-failed")
    assert ran.code == 2
    assert "error: the journal holds a plan in which story a cannot be read" in ran.err
    assert "branches and worktrees are not affected" in ran.err


def test_resume_without_anything_left_says_so(repo: Path) -> None:
    """A finished run is not run again."""
    write_story(repo, "a", command=writes("a.txt"))
    assert run(repo).code == 0
    ran = run(repo, "resume")
    assert ran.code == 0
    assert "nothing left" in ran.err


def test_an_interrupted_run_is_shown_as_such(repo: Path, tmp_path: Path) -> None:
    """`status` of a killed run says that it was interrupted and how to go on."""
    _, ready = _running(repo, tmp_path)
    with started(repo, "run") as program:
        wait_until(ready.exists, what="the session runs")
        os.kill(program.pid, signal.SIGKILL)
        program.finish()
    shown = run(repo, "status")
    assert shown.code == 0
    assert "resume" in shown.out + shown.err


def test_a_journal_that_a_kill_left_empty_is_begun_again(repo: Path) -> None:
    """Acceptance 68: killed between the making of the journal and its first word, the next run just runs."""
    write_story(repo, "a", command=writes("a"))
    journal = repo / ".git" / "autopilot" / "journal.db"
    journal.parent.mkdir()
    journal.touch()
    assert run(repo, "plan", "--json").code == 0
    assert run(repo, "--json").story("a")["status"] == "done"


def test_a_session_that_kills_its_keeper_and_the_server_leaves_no_process(repo: Path, tmp_path: Path) -> None:
    """Unguarded, it can; its daemon is dead before the next attempt starts, and that one succeeds."""
    marker, once = f"left-by-{tmp_path.name}-{os.getpid()}", tmp_path / "once"
    kill = (
        f"touch {once}; (setsid sh -c 'sleep 300 # {marker}' &); "
        "server=$(awk '/^PPid/ {print $2}' /proc/$PPID/status); "
        f"kill -9 $server $PPID; sleep 300 # {marker}"
    )
    left = f"grep -l -s -a '[l]'{marker[1:]} /proc/[0-9]*/cmdline > {tmp_path}/left"
    script = tmp_path / "work.sh"
    script.write_text(f"if ! test -f {once}; then {kill}\nfi\n{left}; echo made > made.txt\n")
    write_story(repo, "a", command=f"exec sh {script}", verify=["test -s made.txt"])
    ran = run(repo, "run", "--no-guard", "--json")
    assert ran.story("a")["status"] == "done", ran.err
    assert ran.story("a")["attempt"] == 2
    assert not processes_with(marker)
    assert (tmp_path / "left").read_text() == ""


def test_a_kill_between_a_question_and_its_park_does_not_block_the_resume(repo: Path) -> None:
    """Acceptance 68: the journal ends with the question; `resume` parks the story, and an answer ends it."""
    question = {"question": "Which?", "options": ["Red", "Blue"], "recommendation": "B", "reason": "calm"}
    asks = json.dumps({"status": "needs-decision", "decision": question})
    work = f"echo x > a.txt; grep -q Blue || echo '{asks}' > $AUTOPILOT_RESULT_FILE"
    write_story(repo, "a", command=work)
    assert run(repo).code == 5
    with closing(sqlite3.connect(repo / ".git" / "autopilot" / "journal.db")) as journal:
        asked = "(SELECT seq FROM events WHERE kind = 'DecisionAsked')"
        journal.execute(f"DELETE FROM events WHERE seq > {asked}")  # noqa: S608  a part of the query
        journal.commit()
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 5, resumed.err
    assert resumed.story("a")["status"] == "parked"
    assert run(repo, "decide", "a", "B").code == 0
    assert run(repo, "resume", "--json").story("a")["status"] == "done"

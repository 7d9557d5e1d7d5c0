"""Sessions that kill what stands over them or rewrite history: by the real program."""

import os
import re
import signal
from pathlib import Path

from tests.acceptance.program import Running, run, started, wait_until, write_story
from tests.conftest import git

ONCE = "if test -e been; then echo made > x.txt; else touch been; {first}; fi"


def _named(program: Running) -> int:
    """Await the session, and give the keeper that it names."""
    wait_until(lambda: re.search(r"keeper=\d+\.", program.err), what="the session runs")
    found = re.search(r"keeper=(\d+)\.", program.err)
    assert found is not None
    return int(found[1])


def _stat(pid: int) -> list[str]:
    """Return what the system tells of a process: its state, its parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_a_session_whose_keeper_is_killed_is_tried_again(repo: Path) -> None:
    """A SIGKILL to the keeper in mid-session costs that session and says so; it is no crash of ours."""
    write_story(repo, "a", command=ONCE.format(first="echo keeper=$PPID.; exec sleep 600"))
    with started(repo, "run", "-v", "--json") as program:
        os.kill(_named(program), signal.SIGKILL)
        ran = program.finish()
    assert (ran.story("a")["status"], ran.story("a")["attempt"]) == ("done", 2), ran.story("a")["reason"]
    assert "was killed (SIGKILL); the session was ended with it" in ran.err


def test_a_killed_fork_server_costs_nothing(repo: Path, tmp_path: Path) -> None:
    """What runs goes on, and what comes after it starts as ever; no story fails for it."""
    go = tmp_path / "go"
    waiting = f"echo keeper=$PPID.; until test -e {go}; do sleep 0.01; done; echo x > x.txt"
    write_story(repo, "a", command=waiting, verify=["test -e x.txt"])
    write_story(repo, "b", command="echo y > y.txt", depends_on=["a"])
    with started(repo, "run", "-v", "--json") as program:
        server = int(_stat(_named(program))[1])
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: _stat(server)[0] == "Z", what="it has let go of its sockets")
        go.touch()
        ran = program.finish()
    assert (ran.code, [story["attempt"] for story in ran.data["stories"]]) == (0, [1, 1]), ran.err


def test_a_session_that_rewrites_what_was_before_it_fails_its_story(repo: Path) -> None:
    """Its own commits are its own; one of the base's that it amends fails it, and the work is kept."""
    own = "echo x > x && git add x && git commit -qm mine"
    amend = "echo y > y && git add y && git commit -q --amend -m mine"
    write_story(repo, "own", command=f"{own} && {amend}", verify=["test -e y"])
    write_story(repo, "yours", command=amend, verify=["test -e y"])
    ran = run(repo, "--json")
    assert (ran.story("own")["status"], ran.story("own")["commits"]) == ("done", 1)
    assert ran.story("yours")["status"] == "failed"
    assert "the history of autopilot/yours was rewritten" in ran.story("yours")["reason"]
    assert git(repo, "show", "autopilot/yours:y") == "y\n"

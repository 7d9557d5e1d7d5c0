"""A run goes on when nobody can take what it says: a full disk, a reader that left, a closed terminal."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.program import LIMIT, command, on_terminal, run, write_story

FULL = Path("/dev/full")


def _shell(repo: Path, redirections: str, *args: str) -> int:
    """Start the program as a shell does, with its streams somewhere else."""
    line = f"{shlex.join(command(*args))} {redirections}"
    return subprocess.run(["sh", "-c", line], cwd=repo, timeout=LIMIT, check=False).returncode


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize(
    ("redirections", "args"),
    [("> /dev/null 2> /dev/full", ()), ("> /dev/full 2> /dev/null", ("--events",))],
)
def test_a_full_disk_under_what_it_says_does_not_end_the_run(
    repo: Path, redirections: str, args: tuple[str, ...]
) -> None:
    """Acceptance 72: narration or events that cannot be written are lost, and the stories go on."""
    write_story(repo, "a", command="echo a > a.txt")
    assert _shell(repo, redirections, *args) == 0
    assert run(repo, "status", "--json").story("a")["status"] == "done"


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_end_the_run(repo: Path, closed: str) -> None:
    """A program started without stdin, stdout or stderr writes into no file that took their place."""
    write_story(repo, "a", command="echo to the log; echo and this >&2; echo a > a.txt")
    assert _shell(repo, closed) == 0
    assert run(repo, "status", "--json").story("a")["status"] == "done"
    assert run(repo, "logs", "a").out.splitlines()[1:] == ["to the log", "and this"]


def test_a_reader_of_the_narration_that_leaves_does_not_end_the_run(repo: Path) -> None:
    """`2>&1 | head -1`: the story that works then is done all the same."""
    write_story(
        repo, "a", command="for _ in $(seq 600); do [ -f $GO ] && break; sleep 0.05; done; echo a > a"
    )
    go = repo.parent / "go"
    reading, writing = os.pipe()
    program = subprocess.Popen(
        command("run"),
        cwd=repo,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=writing,
        env={**os.environ, "GO": str(go)},
    )
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    go.touch()
    assert program.wait(LIMIT) == 0
    assert run(repo, "status", "--json").story("a")["status"] == "done"


def test_a_terminal_that_is_gone_does_not_end_the_run(repo: Path) -> None:
    """A run in the background whose terminal was closed draws no more, and goes on."""
    go = repo.parent / "go"
    write_story(
        repo, "a", command=f"for _ in $(seq 600); do [ -f {go} ] && break; sleep 0.05; done; echo a > a"
    )
    with on_terminal(repo) as screen:
        screen.await_text("running")
        screen.close()
        go.touch()
        assert screen.process.wait(LIMIT) == 0
    assert run(repo, "status", "--json").story("a")["status"] == "done"


def test_a_reader_of_the_report_that_leaves_does_not_hide_a_failure(repo: Path) -> None:
    """`| head -0` and a full disk under stdout: the exit code is still that of the run."""
    write_story(repo, "a", command="exit 9")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(command("run"), cwd=repo, stdout=closed, timeout=LIMIT, check=False)
    assert done.returncode == 3
    if FULL.exists():
        assert _shell(repo, "> /dev/full 2> /dev/null", "--again") == 3

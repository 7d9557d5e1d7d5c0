"""`logs`: what a story's sessions printed, harmless unless the raw bytes are asked for."""

import contextlib
import os
import pty
import subprocess
from pathlib import Path

from runner.core.events import events as ev
from runner.core.model import RunId
from tests.acceptance.program import run, write_story
from tests.acceptance.written_runs import (
    PROGRAM,
    autopilot,
    coordinator,
    document,
    rest_of,
    write_events,
    write_log,
)
from tests.agents.recordings.reading import FOLDER as RECORDINGS
from tests.conftest import git
from tests.records.sample_runs import RUN, done, ended_events, event, failed, session_ended, started, working

OTHER = RunId("20260102-130000-cd34")
HOSTILE = b"plain\n\x1b[31mred\x1b[0m \x1b]0;owned\x07\n 10%\r 100%\nbroken \xff\nno newline"


def two_sessions(repo: Path) -> None:
    """Write a story that had two sessions and ended."""
    write_events(
        repo,
        [
            started("api-3", ("web-1", ["api-3"])),
            *working("api-3", 1),
            session_ended("api-3", 2, outcome="failed"),
            *working("api-3", 3, attempt=2),
            session_ended("api-3", 4, attempt=2),
            *done("api-3", 5)[1:],
            event(6, ev.RunEnded(exit_code=0)),
        ],
    )
    write_log(repo, "api-3", b"first\n")
    write_log(repo, "api-3", HOSTILE, session=2)


def test_sessions_are_printed_in_order_and_harmless(repo: Path) -> None:
    """With --all each session has a title; escapes are gone, words are kept."""
    two_sessions(repo)
    shown = autopilot(repo, "logs", "api-3", "--all")
    assert shown.returncode == 0
    titles = [line for line in shown.stdout.splitlines() if ", attempt " in line]
    assert [title.partition(", ")[0] for title in titles] == [
        *("--- session 1: Implement", "--- session 2: Implement"),
    ]
    words = [line for line in shown.stdout.splitlines() if not line.startswith("--- ")]
    assert words == ["first", "plain", "red ", " 100%", "broken \ufffd", "no newline"]
    assert "--- session 1 ended: failed, 0.8 s, 1,000 tokens in, 50 out, $0.25" in shown.stdout
    newest = autopilot(repo, "logs", "api-3").stdout
    assert newest.startswith("--- session 2: Implement, attempt 2 by claude, ")
    assert "first" not in newest


def test_raw_gives_the_very_bytes(repo: Path) -> None:
    """With --raw nothing is added, changed or left out."""
    two_sessions(repo)
    command = [*PROGRAM, "logs", "api-3", "--raw"]
    assert subprocess.run(command, cwd=repo, capture_output=True, check=True).stdout == HOSTILE
    every = subprocess.run([*command, "--all"], cwd=repo, capture_output=True, check=True)
    assert every.stdout == b"first\n" + HOSTILE


def test_one_session_only(repo: Path) -> None:
    """--session and --attempt pick; one that is not there is an error, and so are two choices."""
    two_sessions(repo)
    for choice in ("--session=1", "--attempt=1", "--failed"):
        assert autopilot(repo, "logs", "api-3", choice).stdout.splitlines()[1] == "first"
    for choice, hint in (("--session=3", "it has 2 sessions"), ("--attempt=3", "it has: 1, 2.")):
        refused = autopilot(repo, "logs", "api-3", choice)
        assert refused.returncode == 1
        assert hint in refused.stderr
    both = autopilot(repo, "logs", "api-3", "--all", "--failed")
    assert (both.returncode, "--failed and --all choose different sessions" in both.stderr) == (1, True)
    assert autopilot(repo, "logs", "api-3", "-n", "0").returncode == 1


def test_unknown_story_suggests_the_nearest(repo: Path) -> None:
    """A slip of the finger is answered with the name that was meant."""
    two_sessions(repo)
    refused = autopilot(repo, "logs", "api3")
    assert refused.returncode == 1
    assert "did you mean 'api-3'?" in refused.stderr
    assert document(repo, "logs", "api3")["error"]["code"] == "not-found"


def test_story_of_an_older_run_is_found(repo: Path) -> None:
    """Without --run the newest run that has the story answers; with it only that run."""
    two_sessions(repo)
    write_events(repo, [started("other", run=OTHER)])
    assert "plain" in autopilot(repo, "logs", "api-3").stdout
    assert autopilot(repo, "logs", "api-3", "--run", OTHER).returncode == 1
    assert "plain" in autopilot(repo, "logs", "api-3", "--run", RUN).stdout


def test_story_without_a_session_says_so(repo: Path) -> None:
    """An empty answer is explained on stderr."""
    two_sessions(repo)
    shown = autopilot(repo, "logs", "web-1")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert shown.stderr == "web-1 is waiting and has had no sessions yet\n"


def test_a_story_that_failed_before_its_first_session_says_why(repo: Path) -> None:
    """Reports send people here for the reason, also where there is no log to print."""
    git(repo, "branch", "autopilot")
    write_story(repo, "a", command="true")
    run(repo)
    shown = autopilot(repo, "logs", "a")
    assert (shown.returncode, shown.stdout) == (0, "")
    why = "branch autopilot/a cannot be created while branch autopilot exists"
    assert shown.stderr == f"a is failed and had no sessions: {why}\n"


def test_missing_log_file_is_not_a_crash(repo: Path) -> None:
    """A log that somebody deleted prints nothing."""
    write_events(repo, ended_events())
    assert autopilot(repo, "logs", "api-3").returncode == 0


def test_document_holds_the_sessions(repo: Path) -> None:
    """Programs get each session with its log's path and text."""
    two_sessions(repo)
    data = document(repo, "logs", "api-3")["data"]
    assert [entry["attempt"] for entry in data["sessions"]] == [1, 2]
    assert data["sessions"][0]["text"] == "first\n"
    assert Path(data["sessions"][0]["log"]).read_text() == "first\n"
    assert data["sessions"][0]["entries"] == [
        {"kind": "text", "text": "first", "detail": "", "more": 0, "nested": False}
    ]


def test_follow_goes_on_until_the_story_ends(repo: Path) -> None:
    """-f prints what comes, moves on to the next session, and ends with the story."""
    write_events(repo, [started("a", "b"), *working("a", 1)])
    write_log(repo, "a", b"first\nsec")
    with coordinator(repo):
        following = subprocess.Popen(
            [*PROGRAM, "logs", "a", "-f"], cwd=repo, stdout=subprocess.PIPE, text=True
        )
        assert following.stdout is not None
        assert following.stdout.readline().startswith("--- session 1")
        assert following.stdout.readline() == "first\n"
        write_log(repo, "a", b"ond\n")
        assert following.stdout.readline() == "second\n"
        write_events(repo, [session_ended("a", 2, outcome="failed"), *working("a", 3, attempt=2)])
        write_log(repo, "a", b"third", session=2)
        write_events(repo, done("a", 5))
        rest = rest_of(following).splitlines()
    assert rest[0].startswith("--- session 1 ended: ")
    assert rest[1].startswith("--- session 2: Implement, attempt 2")
    assert rest[2] == "third"
    assert following.returncode == 0


def test_follow_ends_when_the_coordinator_dies(repo: Path) -> None:
    """A killed run does not leave its readers hanging."""
    write_events(repo, [started("a"), *working("a", 1)])
    write_log(repo, "a", b"first\n")
    with coordinator(repo) as holder:
        following = subprocess.Popen(
            [*PROGRAM, "logs", "a", "-f"], cwd=repo, stdout=subprocess.PIPE, text=True
        )
        assert following.stdout is not None
        following.stdout.readline()
        holder.kill()
        assert rest_of(following) == "first\n"
    assert following.returncode == 0


def failed_story(repo: Path, log: bytes) -> None:
    """Write a story whose only session failed."""
    write_events(
        repo,
        [started("a"), *working("a", 1), *failed("a", 5, "exit code 1"), event(6, ev.RunEnded(exit_code=1))],
    )
    write_log(repo, "a", log)


def test_a_failed_story_shows_the_end_of_what_failed(repo: Path) -> None:
    """`next: autopilot-multi logs STORY` leads to the error at once, however long the log is."""
    failed_story(repo, b"".join(b"line %d\n" % number for number in range(48_593)))
    lines = autopilot(repo, "logs", "a").stdout.splitlines()
    assert len(lines) < 80
    assert lines[0] == "… 48,535 earlier lines; `autopilot-multi logs a --session 1` shows them"
    assert "line 48592" in lines
    assert lines[-1] == "a failed: exit code 1"
    assert len(autopilot(repo, "logs", "a", "--session", "1").stdout.splitlines()) == 48_595
    assert autopilot(repo, "logs", "a", "-n", "2").stdout.splitlines()[1] == "line 48592"


def test_the_stream_of_an_agent_is_a_conversation(repo: Path) -> None:
    """Words instead of JSON, with what the session used at the end."""
    failed_story(repo, (RECORDINGS / "claude-denied.log").read_bytes())
    lines = autopilot(repo, "logs", "a", "--all").stdout.splitlines()
    assert lines[1:-1] == [
        "→ Bash: wget example.com",
        "✗ This command requires approval",
        "",
        "● All done.",
        "✗ denied: Bash: wget example.com",
    ]
    assert lines[-1].endswith("1,000 tokens in, 50 out, $0.25")
    entries = document(repo, "logs", "a")["data"]["sessions"][0]["entries"]
    assert [entry["kind"] for entry in entries] == ["tool", "error", "message", "error"]


def on_terminal(repo: Path, *arguments: str, env: dict[str, str]) -> str:
    """Run `logs` on a terminal of its own, and return what it showed there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, "logs", *arguments],
        cwd=repo,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the last process has closed the terminal
            while chunk := os.read(ours, 1 << 16):
                shown += chunk
        os.close(ours)
    assert process.returncode == 0, shown
    return shown.decode()


def test_on_a_terminal_a_pager_gets_the_conversation(repo: Path, tmp_path: Path) -> None:
    """PAGER is a shell command; --no-pager, `cat` and a pager that is missing print directly."""
    failed_story(repo, (RECORDINGS / "claude-denied.log").read_bytes())
    seen = tmp_path / "seen"
    pager = {"PAGER": f"cat > {seen}"}
    assert on_terminal(repo, "a", env=pager) == ""
    assert "→ \x1b[36mBash: wget example.com\x1b[0m\n" in seen.read_text()
    seen.unlink()
    assert "Bash: wget" in on_terminal(repo, "a", "--no-pager", env=pager)
    assert not seen.exists()
    missing = on_terminal(repo, "a", "--no-color", env={"PAGER": "no-such-pager -R"})
    assert "the pager 'no-such-pager -R' of PAGER was not found" in missing
    assert "→ Bash: wget example.com" in missing


def test_a_pager_that_is_left_early_is_no_error(repo: Path) -> None:
    """A user reads the first lines and leaves."""
    failed_story(repo, b"".join(b"line %d\n" % number for number in range(200_000)))
    shown = on_terminal(repo, "a", "--session", "1", env={"PAGER": "head -n 3"})
    assert [line for line in shown.splitlines() if line.startswith("line")] == ["line 0", "line 1"]

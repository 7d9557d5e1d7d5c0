"""`logs`: what a story's sessions printed, harmless unless the raw bytes are asked for."""

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
from tests.conftest import git
from tests.records.sample_runs import RUN, done, ended_events, event, session_ended, started, working

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
            *done("api-3", 5),
            event(6, ev.RunEnded(exit_code=0)),
        ],
    )
    write_log(repo, "api-3", b"first\n")
    write_log(repo, "api-3", HOSTILE, session=2)


def test_sessions_are_printed_in_order_and_harmless(repo: Path) -> None:
    """Each session has a title; escapes are gone, words are kept."""
    two_sessions(repo)
    shown = autopilot(repo, "logs", "api-3")
    assert shown.returncode == 0
    titles = [line for line in shown.stdout.splitlines() if line.startswith("--- session ")]
    assert [title.partition(", ")[0] for title in titles] == [
        *("--- session 1: Implement", "--- session 2: Implement"),
    ]
    words = [line for line in shown.stdout.splitlines() if line not in titles]
    assert words == ["first", "plain", "red ", " 100%", "broken \ufffd", "no newline"]


def test_raw_gives_the_very_bytes(repo: Path) -> None:
    """With --raw nothing is added, changed or left out."""
    two_sessions(repo)
    raw = subprocess.run([*PROGRAM, "logs", "api-3", "--raw"], cwd=repo, capture_output=True, check=True)
    assert raw.stdout == b"first\n" + HOSTILE


def test_one_session_only(repo: Path) -> None:
    """--session picks one, without a title; one that is not there is an error."""
    two_sessions(repo)
    assert autopilot(repo, "logs", "api-3", "--session", "1").stdout == "first\n"
    failed = autopilot(repo, "logs", "api-3", "--session=3")
    assert failed.returncode == 1
    assert "it has 2 sessions" in failed.stderr


def test_unknown_story_suggests_the_nearest(repo: Path) -> None:
    """A slip of the finger is answered with the name that was meant."""
    two_sessions(repo)
    failed = autopilot(repo, "logs", "api3")
    assert failed.returncode == 1
    assert "did you mean 'api-3'?" in failed.stderr
    assert document(repo, "logs", "api3")["error"]["code"] == "not-found"


def test_story_of_an_older_run_is_found(repo: Path) -> None:
    """Without --run the newest run that has the story answers; with it only that run."""
    two_sessions(repo)
    write_events(repo, [started("other", run=OTHER)])
    assert "first" in autopilot(repo, "logs", "api-3").stdout
    assert autopilot(repo, "logs", "api-3", "--run", OTHER).returncode == 1
    assert "first" in autopilot(repo, "logs", "api-3", "--run", RUN).stdout


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
    assert rest[0].startswith("--- session 2: Implement, attempt 2")
    assert rest[1:] == ["third"]
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

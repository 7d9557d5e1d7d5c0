"""Notifications of real runs: by a command, on the desktop and by URL, whatever -q says."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.acceptance.program import LIMIT, on_terminal, run, write_story

RECORDS = 'echo "$AUTOPILOT_NOTICE $AUTOPILOT_STORY_ID: $AUTOPILOT_NOTICE_TITLE" >> {path}'


def settings(repo: Path, **values: object) -> None:
    """Write the settings of the repository's user."""
    lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in values.items()]
    (repo / "autopilot-multi.toml").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("flags", [[], ["-q"]])
def test_failures_and_the_end_are_notified(repo: Path, tmp_path: Path, flags: list[str]) -> None:
    """The command runs once for each, in order, and all of it before the program exits."""
    seen = tmp_path / "seen"
    settings(repo, notify=RECORDS.format(path=seen))
    write_story(repo, "a", command="echo no database >&2; exit 7", max_attempts=1)
    write_story(repo, "b", command="echo x > b.txt")
    assert run(repo, *flags).code == 4
    lines = seen.read_text().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["failed", "ended"]
    assert lines[0] == "failed a: a failed: gave up after 1 attempt: session: exit code 7"
    assert lines[1].startswith("ended : run ended: ")


def test_kinds_are_chosen(repo: Path, tmp_path: Path) -> None:
    """`notify-on` says of what; a kind that does not exist is an error with the nearest."""
    seen = tmp_path / "seen"
    settings(repo, notify=RECORDS.format(path=seen), notify_on=["ended"])
    write_story(repo, "a", command="exit 7", max_attempts=1)
    assert run(repo).code == 3
    assert [line.partition(" ")[0] for line in seen.read_text().splitlines()] == ["ended"]
    settings(repo, notify_on=["endet"])
    refused = run(repo)
    assert refused.code != 0
    assert "must be a list of question, failed, ended, limit" in refused.err


def test_a_story_that_has_used_up_its_time_is_a_limit(repo: Path, tmp_path: Path) -> None:
    """It is no failure: the user decides whether it gets more."""
    seen = tmp_path / "seen"
    settings(repo, notify=RECORDS.format(path=seen), notify_on=["limit", "failed"], story_minutes=0.005)
    write_story(repo, "a", command="sleep 0.5; exit 1")
    run(repo)
    assert [line.partition(": ")[0] for line in seen.read_text().splitlines()] == ["limit a"]


def test_a_command_that_fails_is_noted_once(repo: Path) -> None:
    """The run succeeds, and says what happened to its notifications a single time."""
    settings(repo, notify="echo no bus >&2; exit 3")
    for name in ("a", "b"):
        write_story(repo, name, command="exit 1", max_attempts=1)
    ran = run(repo)
    assert ran.code == 3
    assert ran.err.count("the notify command failed: exit code 3: no bus") == 1


@contextmanager
def service() -> Iterator[tuple[int, list[dict[str, str]]]]:
    """Listen on a port of this machine, and keep what is posted there."""
    got: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, got
        server.shutdown()


def test_urls_get_notifications_and_are_shown_nowhere(repo: Path) -> None:
    """A service gets title and text; config and the journal hold nothing of the URL but its service."""
    pytest.importorskip("apprise")
    write_story(repo, "a", command="echo x > a.txt")
    with service() as (port, got):
        url = f"json://user:hush-hush@127.0.0.1:{port}"
        settings(repo, notify_urls=[url], notify_on=["ended"])
        assert run(repo).code == 0
    assert [one["title"] for one in got] == ["autopilot-multi: run ended: 1 done"]
    shown = run(repo, "config", "notify-urls")
    assert "hush-hush" not in shown.out
    assert "json://[redacted]" in shown.out
    kept = [
        path for path in (repo / ".git").rglob("*") if path.is_file() and b"hush-hush" in path.read_bytes()
    ]
    assert kept == []


def test_the_repositorys_own_channels_need_consent_and_show_no_secret(repo: Path, tmp_path: Path) -> None:
    """Command and URL are asked for with their lines; of the URL only the service is shown or kept."""
    pytest.importorskip("apprise")
    asking = {"AUTOPILOT_MULTI_TRUST": "ask"}
    seen = tmp_path / "seen"
    settings(repo, notify=RECORDS.format(path=seen), notify_urls=["json://user:hush-hush@127.0.0.1:9"])
    write_story(repo, "a", command="true")
    refused = run(repo, env=asking)
    assert refused.code == 1
    assert "notify `" in refused.err
    assert "notify-urls `json://[redacted] " in refused.err
    listed = run(repo, "trust", "--yes", env=asking)
    assert "(autopilot-multi.toml:2)" in listed.out
    assert not seen.exists()
    assert "hush-hush" not in refused.err + refused.out + listed.out + listed.err
    assert [path for path in tmp_path.rglob("trust/*.json") if "hush-hush" in path.read_text()] == []
    settings(repo, notify_urls=["json://user:hush-hush@127.0.0.1:99"])
    assert "notify-urls" in run(repo, env=asking).err, "another URL is another question"


ASKS = {
    "status": "needs-decision",
    "decision": {"question": "Red or blue?", "options": ["Red", "Blue"], "recommendation": "B"},
}


@pytest.mark.parametrize("term", ["dumb", "xterm"], ids=["dialog", "dashboard"])
@pytest.mark.parametrize("bell", [True, False])
def test_a_question_rings_unless_the_bell_is_off(repo: Path, *, term: str, bell: bool) -> None:
    """`bell = false` is for all bells of a run: those of questions, too."""
    settings(repo, bell=bell)
    write_story(repo, "a", command=f"echo '{json.dumps(ASKS)}' > $AUTOPILOT_RESULT_FILE")
    with on_terminal(repo, "run", term=term, keys=True) as screen:
        screen.await_text("Red or blue?")
        screen.await_text("Enter for later" if term == "dumb" else "Blue")
        assert screen.rang is bell


def altered(repo: Path, statement: str) -> subprocess.CompletedProcess[str]:
    """Run the program after a statement that changes what it finds or how long it waits."""
    program = f"import sys; {statement}; from runner.__main__ import main; sys.exit(main())"
    argv = [sys.executable, "-c", program, "run"]
    return subprocess.run(argv, cwd=repo, capture_output=True, text=True, timeout=LIMIT, check=False)


def test_urls_without_apprise_are_an_error_that_names_the_extra(repo: Path) -> None:
    """Before anything runs, not at the first notification."""
    settings(repo, notify_urls=["json://127.0.0.1:9"])
    write_story(repo, "a", command="echo x > a.txt")
    ran = altered(repo, "sys.modules['apprise'] = None")
    assert ran.returncode == 1
    assert "notify-urls needs the package apprise, which is not installed" in ran.stderr
    assert "pip install 'autopilot-multi[notify]'" in ran.stderr
    assert not (repo.parent / f"{repo.name}.worktrees").exists()


def test_a_command_that_hangs_delays_the_end_by_its_limit_at_most(repo: Path, tmp_path: Path) -> None:
    """However many notifications there would be: after the first, the command is not used any more."""
    seen = tmp_path / "seen"
    settings(repo, notify=f"echo started >> {seen}; sleep 300")
    for name in ("a", "b", "c"):
        write_story(repo, name, command="exit 1", max_attempts=1)
    before = time.monotonic()
    ran = altered(repo, "import runner.run.notices.channels as channels; channels.NOTIFY_SECONDS = 1.5")
    assert ran.returncode == 3, ran.stderr
    assert ran.stderr.count("it hung and was ended after 1.5 s") == 1
    assert seen.read_text() == "started\n"
    assert time.monotonic() - before < LIMIT / 2

"""The dashboard under a person's keys, in a real terminal: a real run, watched and steered."""

import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import suppress
from html import unescape
from pathlib import Path

import pytest

from runner.serve.web.access.address import read_address
from tests.acceptance.program import LIMIT, command, commit_stories, run, start, wait_until, write_story
from tests.acceptance.test_web import Socket
from tests.acceptance.tmux import Window
from tests.acceptance.written_runs import coordinator, write_events
from tests.records.sample_runs import mixed_events

QUESTION = {
    "status": "needs-decision",
    "decision": {
        "question": "Red or blue?",
        "options": ["Red", "Blue"],
        "recommendation": "B",
        "reason": "it is calmer",
    },
}
FOOT = "Ctrl-C: start nothing new"
MODE = "stty -a | grep -q -w -e -icanon || printf 'lines-%s\\n' again"
"""Says `lines-again` if the terminal is not in the mode for keys."""


@pytest.fixture
def window(repo: Path, tmp_path: Path) -> Iterator[Window]:
    """Return a shell in a terminal of 80 columns and 24 lines."""
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    made = Window(tmp_path / "tmux")
    made.tmux("new-session", "-d", "-x", "80", "-y", "24", "-c", str(repo), "env", "PS1=> ", "sh")
    try:
        yield made
    finally:
        with suppress(subprocess.CalledProcessError):  # a test may have ended it
            made.tmux("kill-server")


def _prepare(repo: Path, tmp_path: Path) -> Path:
    """Write a story that asks, one that fails, some that go on until the returned file exists."""
    go, asked = tmp_path / "go", tmp_path / "asked"
    goes_on = f"n=0; until test -f {go}; do n=$((n+1)); echo part $n; echo $n > README.md; sleep 0.1; done"
    ask = f"touch {asked}; echo {shlex.quote(json.dumps(QUESTION))} > $AUTOPILOT_RESULT_FILE"
    write_story(repo, "api-3", command=goes_on)
    write_story(repo, "docs-1", command=goes_on)
    write_story(repo, "asks-2", command=f"if test -f {asked}; then echo x > x.txt; else {ask}; fi")
    write_story(repo, "broken", command="echo Error: cannot import name; exit 1", max_attempts=1)
    write_story(repo, "ui-4", command="echo ui > ui.txt", depends_on=["api-3"])
    commit_stories(repo)
    return go


def test_a_run_is_steered_by_keys_at_three_sizes(repo: Path, tmp_path: Path, window: Window) -> None:
    """Question, log, diff, stop, pause, filter, help, suspension, resizes; the terminal is as before."""
    go = _prepare(repo, tmp_path)
    window.type(shlex.join([*command("run", "--max-stories=4", "--window=fixed")]))
    _answer(window)
    window.press("Up", "Up", "Up", "Up", "Enter")
    window.await_text("── api-3 · session 1", "branch  autopilot/api-3", "part 2")
    window.resize(120, 40)
    window.press("d")
    window.await_text("── changes of api-3", "+++ b/README.md")
    window.press("?")
    window.await_text("── keys", "start no more stories, or start them again", "show these keys")
    window.press("Escape")
    window.press("p")
    window.await_text("paused, nothing starts")
    window.press("p")
    window.await_text("stories start again")
    window.resize(200, 50)
    window.press("f")
    lines = window.await_text("showing 2 of 5: working")
    assert not any("broken" in line for line in lines)
    window.press("/", "d", "o", "c", "Enter")
    lines = window.await_text("showing 1 of 5: working, with 'doc'")
    window.press("s")
    window.await_text("stop docs-1? y: after")
    window.press("x")
    window.await_text("docs-1 stops now")
    window.press("Escape", "Escape")
    window.await_text("✗ broken")
    window.press("/", "b", "r", "o", "Enter", "r")
    window.await_text("note for broken: _")
    window.press("h", "i", "Enter")
    window.await_text("broken is tried again, with your note")
    window.press("q")
    window.await_text("run --detach")
    _suspend(window)
    go.touch()
    window.type("")
    window.await_text("3 done, 1 failed, 1 stopped", "broken failed: gave up", "Error: cannot import name")
    window.type(f"clear; {MODE}")
    window.await_text("lines-again")
    found = {story["id"]: story["status"] for story in run(repo, "status", "--json").data["stories"]}
    assert found == {
        "api-3": "done",
        "asks-2": "done",
        "ui-4": "done",
        "docs-1": "stopped",
        "broken": "failed",
    }


def test_a_key_opens_the_page_which_ends_with_the_dashboard(
    repo: Path, tmp_path: Path, window: Window
) -> None:
    """The browser gets a file that leads to the page; pressed again, the same page is opened again."""
    opened, browser, go = tmp_path / "opened", tmp_path / "browser", tmp_path / "go"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    write_story(repo, "a", command=f"until test -f {go}; do sleep 0.1; done; echo x > x.txt")
    commit_stories(repo)
    window.type(f"BROWSER={browser} {shlex.join(command('run'))}")
    window.await_text("● a", "w page")
    window.press("w")
    window.await_text("page: http://127.0.0.1:")
    wait_until(opened.exists, what="the browser is started")
    served = read_address(repo / ".git")
    assert served is not None
    (door,) = opened.read_text().split()
    assert served.url in unescape(Path(door.removeprefix("file://")).read_text())
    assert '<div class="board"' in Socket(served.url).ask("GET", "/")[2]
    window.press("w")
    wait_until(lambda: opened.read_text().split() == [door, door], what="it is opened again")
    assert read_address(repo / ".git") == served
    go.touch()
    window.await_text("1 done")
    wait_until(lambda: read_address(repo / ".git") is None, what="the page ends with the run")


def test_a_detached_run_is_joined_and_steered_and_survives_the_loss_of_its_terminal(
    repo: Path, tmp_path: Path, window: Window
) -> None:
    """A second terminal has the same keys; when it is gone, what it asked for still holds."""
    go = tmp_path / "go"
    write_story(repo, "a", command=f"until test -f {go}; do sleep 0.1; done; echo x > a.txt")
    write_story(repo, "b", command="echo x > b.txt", depends_on=["a"])
    commit_stories(repo)
    try:
        window.type(shlex.join(command("run", "--detach")))
        window.await_text("continues without this terminal")
        window.tmux("new-window", "-c", str(repo), "env", "PS1=> ", "sh")
        window.type(shlex.join(command("attach")))
        window.await_text("● a", "waits for a", "q or Ctrl-C: stop watching")
        window.press("p")
        window.await_text("paused, nothing starts")
        window.tmux("kill-server")
        assert run(repo, "status", "--json").data["paused"] is True
        assert run(repo, "unpause").code == 0
        go.touch()
        joined = run(repo, "attach", "--json")
    finally:
        go.touch()  # the run is a process of its own
    assert joined.code == 0, joined.err
    assert {story["status"] for story in run(repo, "status", "--json").data["stories"]} == {"done"}


def _answer(window: Window) -> None:
    """Postpone the question, open it again and answer it."""
    window.await_text("asks-2 asks · A, B: answer", "B) Blue", "▸ ? asks-2", "needs you: Red or blue?", FOOT)
    window.press("Escape")
    window.await_text("postponed")
    window.press("a")
    window.await_text("asks-2 asks · A, B: answer")
    window.press("b")
    window.await_text("asks-2: answered B) Blue")
    window.await_text("✓ asks-2", "waits for api-3")


def _suspend(window: Window) -> None:
    """Go to the shell and come back."""
    window.press("C-z")
    window.await_text("> ")
    window.type(f"{MODE}; fg")
    window.await_text("lines-again")
    window.press("Escape", "Escape")
    window.await_text("■ docs-1", "● api-3", FOOT)
    lines = window.lines()
    assert sum("autopilot-multi · run " in line for line in lines) == 1, "\n".join(lines)


def _is_for_lines(descriptor: int) -> bool:
    return bool(termios.tcgetattr(descriptor)[3] & termios.ICANON)


@pytest.mark.parametrize(("end", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), ("q", 0)])
def test_whatever_ends_a_watch_the_terminal_is_put_back(
    repo: Path, end: signal.Signals | str, code: int
) -> None:
    """A signal of another program, Ctrl-C, and the key to leave; the run is not touched."""
    write_events(repo, mixed_events())
    ours, theirs = pty.openpty()
    with coordinator(repo):
        process = start(
            repo,
            "status",
            "--watch",
            environ={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
            streams=(theirs, theirs, theirs),
            own_session=True,
        )
        try:
            wait_until(lambda: not _is_for_lines(theirs), what="it takes keys")
            if isinstance(end, str):
                os.write(ours, end.encode())
            else:
                process.send_signal(end)
            assert process.wait(LIMIT) == code
            assert _is_for_lines(theirs)
        finally:
            process.kill()
            process.wait(LIMIT)
            os.close(ours)
            os.close(theirs)

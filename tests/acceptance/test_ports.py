"""Leased ports and database names: stories of several runs at once, each with its own."""

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from runner.machine.ports import FIRST, LAST, PortLeases
from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.conftest import git

LISTEN = """
import os, pathlib, socket, sys, time
held = [socket.create_server(("", int(port))) for port in os.environ["AUTOPILOT_PORTS"].split()]
seen = pathlib.Path(os.environ["MEETING"])
name = os.environ["AUTOPILOT_DATABASE"]
(seen / (name + ".part")).write_text(" ".join(str(each.getsockname()[1]) for each in held))
(seen / (name + ".part")).rename(seen / name)
while not (seen / "go").exists():
    time.sleep(0.05)
pathlib.Path("listened").write_text(os.environ["AUTOPILOT_PORT_2"])
"""


def test_stories_of_two_runs_all_listen_at_once(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every port of every story is bound at the same time; `status` shows them while they are leased."""
    all_listen(repo, tmp_path, monkeypatch, stories=4)


@pytest.mark.chaos
def test_fifty_stories_all_listen_at_once(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with fifty stories in two runs."""
    all_listen(repo, tmp_path, monkeypatch, stories=25)


def all_listen(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stories: int) -> None:
    """Have two runs in two repositories with that many stories each; each story listens on two ports."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    monkeypatch.setenv("MEETING", str(meeting))
    (repo / "listen.py").write_text(LISTEN)
    for number in range(stories):
        write_story(repo, f"s{number}", command="python3 listen.py", ports=2)
    commit_stories(repo)
    git(tmp_path, "clone", "-q", str(repo), "other")
    git(tmp_path / "other", "config", "user.name", "t")
    git(tmp_path / "other", "config", "user.email", "t@example.com")
    limits = (f"--max-stories={stories}", "--window=fixed")
    with ExitStack() as stack:
        runs = [stack.enter_context(started(place, "run", *limits)) for place in (repo, tmp_path / "other")]
        try:
            wait_until(
                lambda: len([each for each in meeting.iterdir() if not each.suffix]) == 2 * stories,
                what="all stories to listen",
                limit=120,
            )
            shown: dict[str, Any] = run(repo, "status", "--json").data
            text = run(repo, "status").out
        finally:
            (meeting / "go").touch()
        ended = [running.finish() for running in runs]
    assert [each.code for each in ended] == [0, 0], ended[0].err + ended[1].err
    bound = [port for each in meeting.iterdir() for port in each.read_text().split()]
    assert len(set(bound)) == len(bound) == 4 * stories
    assert all(FIRST <= int(port) <= LAST for port in bound)
    story = shown["stories"][0]
    assert (meeting / story["database"]).read_text().split() == [str(port) for port in story["ports"]]
    assert f"database {story['database']} ({story['id']})" in text
    after = run(repo, "status", "--json").data["stories"][0]
    assert (after["ports"], after["database"]) == ([], None)


def test_hooks_verify_commands_and_landings_have_ports_too(repo: Path) -> None:
    """A hook, a verify command, the check of the base and a landing each find a free port."""
    listens = (
        'python3 -c \'import os, socket; socket.create_server(("", int(os.environ["AUTOPILOT_PORT"])))\''
    )
    (repo / "check").write_text(f'{listens} && test -n "$AUTOPILOT_DATABASE"\n')
    (repo / "autopilot-multi.toml").write_text(
        "ports = 1\nverify = ['sh check']\nhooks.after_create = 'sh check'\n"
    )
    write_story(repo, "one", command="sh check && echo one > one.txt")
    commit_stories(repo)
    done = run(repo, "run", "--land")
    assert done.code == 0, done.out + done.err
    assert (repo / "one.txt").exists()


def test_a_port_that_is_taken_is_not_leased(tmp_path: Path) -> None:
    """A port on which somebody listens, or that another run holds, is passed over; one's own comes again."""
    leases, others = PortLeases(), PortLeases()
    with leases.lent(tmp_path, 1) as first:
        assert first
        with others.lent(tmp_path, 1, before=first.ports) as second:
            assert second
            assert second.ports != first.ports
    again = first.ports
    with socket.create_server(("127.0.0.1", *again)), leases.lent(tmp_path, 1, before=again) as third:
        assert third
        assert third.ports != again
    with leases.lent(tmp_path, 1, before=again) as fourth:
        assert fourth == first
        assert leases.variables(tmp_path, "any")["AUTOPILOT_PORT"] == str(again[0])
    assert leases.variables(tmp_path, "any") == {}

"""An agent at its limit: which stories wait, which do not, and how a wait is stopped."""

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.model import RunSnapshot, Status
from tests.acceptance.program import write_story
from tests.run.test_orchestrator import Watcher
from tests.story.test_kill_switches import carry, story

FAKE = """#!{python}
import json, os, pathlib, sys
mark = pathlib.Path({home!r}, os.environ["AUTOPILOT_STORY_ID"])
limited = os.environ["AUTOPILOT_STORY_ID"] == "a" and not mark.exists()
mark.touch()
pathlib.Path("made.txt").write_text("made")
words = {words!r} if limited else "done"
print(json.dumps({{"type": "result", "subtype": "success", "is_error": limited, "result": words,
                  "api_error_status": 429 if limited else None}}))
sys.exit(limited)
"""


def a_limited_agent(folder: Path, patch: pytest.MonkeyPatch, words: str) -> None:
    """Put a claude on PATH that is at its limit when story `a` asks for the first time."""
    program = folder / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(FAKE.format(python=sys.executable, home=str(folder), words=words))
    program.chmod(0o755)
    patch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


async def test_a_limit_holds_back_its_own_agent_alone(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No story of the agent starts before the named time; the free slot goes to a story of another agent."""
    a_limited_agent(tmp_path, monkeypatch, "rate limit: try again in 3 s")
    write_story(repo, "a", agent="claude", priority=9)
    waits = f"until test -f {tmp_path}/go; do sleep 0.02; done; echo x > c.txt"
    write_story(repo, "c", command=waits, priority=8)
    write_story(repo, "b", agent="claude", priority=7)
    write_story(repo, "d", command="echo x > d.txt", priority=1)
    began: dict[str, float] = {}
    pauses: list[ag.AgentPaused] = []

    def react(event: ev.Event, _run: RunSnapshot) -> None:
        match event.body:
            case ag.AgentPaused():
                pauses.append(event.body)
                (tmp_path / "go").touch()
            case ev.StoryStarted():
                began[event.body.story_id] = event.at
            case _:
                pass

    ended = await carry(repo, Watcher(react), max_stories=2, window="fixed")
    assert {one.status for one in ended.run.stories.values()} == {Status.DONE}
    (pause,) = pauses
    assert pause.everyone
    assert began["d"] < pause.until <= began["b"]
    assert [session.attempt for session in story(ended, "a").sessions] == [1, 1]


async def test_a_person_need_not_wait_for_a_limit(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop while a story waits for its agent takes effect immediately, and a resume may continue."""
    a_limited_agent(tmp_path, monkeypatch, "usage limit, resets in 5 hours")
    write_story(repo, "a", agent="claude")
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            seen = trio.Event()

            def react(event: ev.Event, _run: RunSnapshot) -> None:
                if isinstance(event.body, ev.OutputSeen) and event.body.line.startswith("waits for claude"):
                    seen.set()

            async def stop() -> None:
                await seen.wait()
                os.kill(os.getpid(), signal.SIGINT)

            nursery.start_soon(stop)
            ended = await carry(repo, Watcher(react))
    found = story(ended, "a")
    assert (found.status, found.progress.attempt) == (Status.STOPPED, 1)
    assert found.kill_switch is not None
    assert found.kill_switch.name == "user-abort"
    assert set(ended.run.pauses) == {"claude"}

"""An agent's conversation continues on another worker; the stand-in keeps its files as claude does."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.agents.known.claude import ClaudeAgent
from runner.agents.known.codex import CodexAgent
from runner.agents.workers import Worker, Workers
from runner.core.agent_settings import AgentSettings
from runner.core.model import Conversation, StoryId
from runner.remote.cluster.talks import KeptTalks, put_talk, take_talk
from tests.acceptance.program import commit_stories, started, wait_until, write_story
from tests.cluster.machines import events, machines

ID = "0b0a2c1e-1111-4222-8333-444455556666"
TALKER = """#!{python}
import json, os, pathlib, re, sys, time
calls, gate = pathlib.Path({folder!r}, "calls"), pathlib.Path({folder!r}, "gate")
flag = next(flag for flag in ("--session-id", "--resume") if flag in sys.argv)
session = sys.argv[sys.argv.index(flag) + 1]
key = re.sub("[^A-Za-z0-9]", "-", os.getcwd())
file = pathlib.Path(os.environ["HOME"], ".claude/projects", key, session + ".jsonl")
turns = len(file.read_text().splitlines()) if file.exists() else 0
with calls.open("a") as out:
    out.write(json.dumps([flag, session, turns, os.environ["HOME"]]) + "\\n")
file.parent.mkdir(parents=True, exist_ok=True)
with file.open("a") as out:
    out.write(json.dumps({{"turn": turns}}) + "\\n")
print(json.dumps({{"type": "system", "subtype": "init", "session_id": session}}), flush=True)
if turns:
    while not gate.exists():
        time.sleep(0.05)
pathlib.Path("right.txt" if turns else "wrong.txt").write_text("made")
print(json.dumps({{"type": "result", "subtype": "success", "is_error": False, "result": "Done.",
                  "session_id": session, "total_cost_usd": 0.1}}))
"""


def _workers(*agents: Any) -> Workers:
    return Workers(first=Worker(agent=agents[0]), others=tuple(Worker(agent=agent) for agent in agents[1:]))


def test_files_of_a_conversation_are_found_and_put_where_the_agent_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude's are below a name of the workspace, codex's below the day; no name leads elsewhere."""
    agents = _workers(ClaudeAgent(AgentSettings()), CodexAgent(AgentSettings()))
    here, there = tmp_path / "here", tmp_path / "there"
    names = {
        "claude": f".claude/projects/-old-place/{ID}.jsonl",
        "codex": f".codex/sessions/2026/11/18/rollout-2026-11-18T04-00-00-{ID}.jsonl",
    }
    for name in names.values():
        (here / name).parent.mkdir(parents=True)
        (here / name).write_text("what was said")
    expected = {**names, "claude": f".claude/projects/-work-trees-a-b/{ID}.jsonl"}
    for name, file in expected.items():
        monkeypatch.setenv("HOME", str(here))
        talk = take_talk(Conversation(id=ID, agent=name), agents)
        assert talk is not None
        kept = KeptTalks(tmp_path / "kept")
        kept.keep(StoryId("a"), talk)
        assert kept.of(StoryId("a"), Conversation(id=ID, agent=name)) == talk
        assert kept.of(StoryId("a"), Conversation(id="another", agent=name)) is None
        monkeypatch.setenv("HOME", str(there))
        assert put_talk(talk, agents, Path("/work/trees/a.b"))
        assert (there / file).read_text() == "what was said"
    files = CodexAgent.conversation_files
    assert files is not None
    outside = f"{tmp_path}/sessions/1/2/3/rollout-x-{ID}.jsonl"
    for name in ("../x", outside, f"sessions/../../x/rollout-x-{ID}.jsonl"):
        assert not files.put({name: b"x"}, ID, tmp_path, os.environ)
    assert take_talk(Conversation(id="*", agent="codex"), agents) is None
    (here / "secret").write_text("a secret")
    (here / names["codex"]).unlink()
    (here / names["codex"]).symlink_to(here / "secret")
    monkeypatch.setenv("HOME", str(here))
    assert take_talk(Conversation(id=ID, agent="codex"), agents) is None, "no link is followed"
    assert take_talk(Conversation(id=ID, agent="gemini"), agents) is None


@pytest.mark.slow
def test_a_conversation_continues_on_another_worker(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files come along with the end of a session; after a kill the next one resumes it elsewhere."""
    program = tmp_path / "bin/claude"
    program.parent.mkdir()
    program.write_text(TALKER.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    write_story(repo, "a", agent="claude", verify="test -f right.txt")
    commit_stories(repo)
    with (
        machines(tmp_path / "cluster", "one", "two", options=("--slots=1",)) as cluster,
        started(repo, "--cluster", str(cluster.file)) as running,
    ):
        wait_until(lambda: len(_calls(tmp_path)) == 2, what="the second session talks", limit=60)
        (placed,) = (each["data"] for each in events(repo) if each["kind"] == "StoryPlaced")
        cluster.signal(placed["worker"], signal.SIGKILL)
        wait_until(lambda: len(_calls(tmp_path)) == 3, what="it goes on elsewhere", limit=60)
        (tmp_path / "gate").touch()
        ended = running.finish()
    assert ended.code == 0, ended.err
    first, second, third = _calls(tmp_path)
    assert [call[0] for call in (first, second, third)] == ["--session-id", "--resume", "--resume"]
    assert first[1] == second[1] == third[1], "it is one conversation"
    assert [call[2] for call in (first, second, third)] == [0, 1, 1], "and the third session knows the first"
    assert second[3] != third[3], "on another machine"
    (lost,) = (each["data"] for each in events(repo) if each["kind"] == "StoryLost")
    assert lost["talks_on"] is True


def _calls(folder: Path) -> list[list[Any]]:
    file = folder / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

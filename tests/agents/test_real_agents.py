"""Real claude and codex, offline against a scripted model: each story ends as it should."""

import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import Ran, processes_with, run, started, wait_until, write_story
from tests.agents.conftest import Stage, configure, play
from tests.conftest import git

pytestmark = pytest.mark.agents
BOTH = pytest.mark.parametrize("agent", ["claude", "codex"])
COMMIT = {"sh": "git add -A && git commit -q -m work"}


def model_of(agent: str) -> str:
    """Name a model that the program accepts."""
    return "--model=claude-sonnet-4-5" if agent == "claude" else "--model=gpt-5"


def sessions(repo: Path) -> list[dict[str, Any]]:
    """Read the records of sessions."""
    path = repo / ".orchestrator" / "metrics" / "sessions.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@BOTH
def test_three_stories_in_parallel_are_done(stage: Stage, agent: str) -> None:
    """Three real sessions at once, each with its commit, its tokens, its tools and its conversation."""
    for name in ("a", "b", "c"):
        write_story(
            stage.repo, name, body=play(name, {"write": [f"{name}.txt", "made"]}, COMMIT), agent=agent
        )
    ran = run(
        stage.repo, "--json", model_of(agent), "--verify=test -f a.txt -o -f b.txt -o -f c.txt", env=stage.env
    )
    assert ran.code == 0, ran.err
    for name in ("a", "b", "c"):
        assert ran.story(name)["status"] == "done"
        assert git(stage.repo, "show", f"autopilot/{name}:{name}.txt") == "made"
    worked = [record for record in sessions(stage.repo) if record["session_type"] == "work"]
    assert [record["agent_identity"] for record in worked] == [agent] * 3
    for record in worked:
        assert record["status"] == "ok"
        assert record["input_tokens"] >= 3000
        assert record["tool_uses"] == 2
        assert record["conversation"]
        assert record["cost_usd"] > 0
        assert record["cost_estimated"] is (agent == "codex")


def _one(stage: Stage, agent: str, body: str, *arguments: str, env: dict[str, str] | None = None) -> Ran:
    """Carry one story out."""
    write_story(stage.repo, "a", body=body, agent=agent)
    return run(stage.repo, "--json", model_of(agent), *arguments, env={**stage.env, **(env or {})})


def _events(repo: Path, kind: str) -> list[dict[str, Any]]:
    """Read the events of one kind from the journal."""
    with sqlite3.connect(f"file:{repo}/.git/autopilot/journal.db?mode=ro", uri=True) as journal:
        rows = journal.execute("SELECT data FROM events WHERE kind = ? ORDER BY seq", (kind,)).fetchall()
    return [json.loads(row[0]) for row in rows]


@BOTH
def test_a_claim_without_a_change_is_no_work(stage: Stage, agent: str) -> None:
    """An agent that says that all is done and changed nothing has not done the story."""
    ran = _one(stage, agent, play("a", {"say": "Everything is implemented and committed."}))
    assert (ran.code, ran.story("a")["status"]) == (3, "no_work"), ran.err


@BOTH
def test_a_storm_of_overload_costs_no_attempt(stage: Stage, agent: str) -> None:
    """Errors 529 until the program gives up: the session is repeated later, in the same attempt."""
    storm = {"at": 0, "status": 529, "times": 4}
    if agent == "codex":
        configure(stage.repo, stage.url, codex=("request_max_retries=1", "stream_max_retries=1"))
    body = play("a", {"write": ["a.txt", "made"]}, faults=(storm,))
    ran = _one(stage, agent, body, env={"CLAUDE_CODE_MAX_RETRIES": "1"})
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert ran.story("a")["attempt"] == 1
    paused = _events(stage.repo, "AgentPaused")
    assert paused
    assert not any(pause["everyone"] for pause in paused)
    assert len(stage.scene.requests_of("a")) > 4


@BOTH
def test_a_rate_limit_holds_all_its_stories_back_until_the_time_it_names(stage: Stage, agent: str) -> None:
    """A limit that outlasts the program's own patience pauses the agent, and the run says until when."""
    if agent == "codex":
        configure(stage.repo, stage.url, codex=("request_max_retries=0", "stream_max_retries=0"))
    limit = {"at": 0, "status": 429, "times": 1, **({"after": 90} if agent == "claude" else {})}
    ran = _one(stage, agent, play("a", {"write": ["a.txt", "made"]}, faults=(limit,)))
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    (paused,) = _events(stage.repo, "AgentPaused")
    assert paused["everyone"] is True
    assert f"all sessions of {agent} wait until" in ran.err


@BOTH
def test_a_bad_key_fails_at_once_in_the_agents_own_words(stage: Stage, agent: str) -> None:
    """A refused key is no reason to try again: one session, and what to do about it."""
    ran = _one(stage, agent, play("a", faults=({"at": "*", "status": 401, "times": 999},)))
    story = ran.story("a")
    assert (ran.code, story["status"], story["sessions"]) == (3, "failed", 1), ran.err
    assert "401" in story["reason"]
    assert f"`{agent}`" in story["next"]
    assert len(stage.scene.requests_of("a")) < 10


@BOTH
def test_a_stalled_stream_recovers(stage: Stage, agent: str) -> None:
    """A reply that stops in its middle is a silence like others: the session lives through it."""
    if agent == "codex":
        configure(stage.repo, stage.url, codex=("stream_idle_timeout_ms=3000",))
    body = play("a", {"write": ["a.txt", "made"]}, faults=({"at": 0, "stall": 12},))
    ran = _one(stage, agent, body)
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    assert ran.story("a")["sessions"] == 1


FREE = '[agents.claude]\npermissions = "bypass"\nenv = { IS_SANDBOX = "1" }'


@BOTH
def test_a_killed_coordinator_resumes_the_conversation(stage: Stage, agent: str, tmp_path: Path) -> None:
    """Acceptance 68: SIGKILL leaves nothing of the session, and `resume` goes on in its conversation."""
    configure(stage.repo, stage.url, more=FREE)
    nap = f"300.{os.getpid()}"
    wait = {"sh": f"test -f {tmp_path}/go || sleep {nap}"}
    write_story(stage.repo, "a", body=play("a", {"write": ["a.txt", "made"]}, wait), agent=agent)
    with started(stage.repo, model_of(agent), env=stage.env) as running:
        wait_until(lambda: processes_with(f"sleep {nap}"), what="the tool runs", limit=60)
        running.send(signal.SIGKILL)
        wait_until(lambda: not processes_with(nap), what="the tool is gone")
    (tmp_path / "go").touch()
    ran = run(stage.repo, "resume", "--json", env=stage.env)
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    first, second = [record["conversation"] for record in sessions(stage.repo)]
    assert first == second
    assert stage.scene.requests_of("a")[-1]["scripts"] == 2


@BOTH
def test_a_spiral_begins_a_new_conversation(stage: Stage, agent: str) -> None:
    """A retry goes on in its conversation; when the same failure comes again, a fresh one begins."""
    body = play("a", {"write": ["wrong.txt", "made"]})
    ran = _one(
        stage, agent, body, "--verify=test -f right.txt || { echo wrong; exit 1; }", "--max-sessions=4"
    )
    assert ran.story("a")["status"] in {"stopped", "failed"}
    assert _events(stage.repo, "SpiralSeen")
    talks = [record["conversation"] for record in sessions(stage.repo) if record["session_type"] == "work"]
    assert talks[0] == talks[1]
    assert talks[-1] != talks[0]


@BOTH
def test_no_process_survives_a_stop(stage: Stage, agent: str) -> None:
    """Acceptance 39: 20 of 20 sessions leave neither the agent nor a tool, whatever the tool detached."""
    configure(stage.repo, stage.url, more=f'max-stories = 4\nwindow = "fixed"\n{FREE}', bypass=True)
    nap = f"300.{os.getpid()}"
    script = {"sh": f"setsid nohup sleep {nap} > /dev/null 2>&1 & sleep {nap}"}
    for name in ("a", "b", "c", "d"):
        write_story(stage.repo, name, body=play(name, script), agent=agent)
    for _ in range(5):
        with started(stage.repo, "--again", "--json", model_of(agent), env=stage.env) as running:
            wait_until(lambda: len(processes_with(f"sleep\0{nap}\0")) >= 8, what="all tools run", limit=60)
            running.send(signal.SIGTERM)
            ran = running.finish()
        assert ran.code == 143
        assert [story["status"] for story in ran.data["stories"]] == ["stopped"] * 4
        assert _alive(ran.data["run_id"]) == []
        assert processes_with(nap) == []


def _alive(run_id: str) -> list[str]:
    """Find processes that carry the run's mark in their environment."""
    mark = f"AUTOPILOT_RUN_ID={run_id}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found

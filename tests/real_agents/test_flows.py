"""Whole flows by the real claude and codex, against a model that obeys its prompt to the letter.

Boundary, question, failure with escalation, skip, rollback, Ctrl-C, kill -9 and a CI shard; two stories at a
time, in worktrees and in one shared tree; then both branches merge.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import Ran, run, started, wait_until, write_story
from tests.conftest import git
from tests.real_agents.conftest import Stage
from tests.real_agents.stories import PATIENCE

pytestmark = pytest.mark.agents
BOTH = pytest.mark.parametrize("agent", ["claude", "codex"])
LONG = 900.0
BACK_TO = {"existing-code": "Deploy", "meta-repo": "Document Sync"}
FILES = {"rich": "_autopilot_state.md", "pointer": "_autopilot_state.md", "autodev": "_autodev_state.md"}


def story(stage: Stage, name: str, flow: str, dialect: str = "autodev", **script: str) -> None:
    """Write a story that follows a flow, for a model that obeys its prompt."""
    play: dict[str, Any] = {"id": name, "literal": True, **script}
    body = f"Do what the step asks for.\n\nPLAY {json.dumps(play)}"
    write_story(stage.repo, name, body=body, agent=stage.agent, flow=flow, dialect=dialect, max_attempts=2)


def play(stage: Stage, *arguments: str, limit: float = LONG) -> Ran:
    """Run the program with the agent."""
    return run(stage.repo, *arguments, "--json", env=stage.env, limit=limit)


def status(ran: Ran) -> dict[str, str]:
    """Return what became of each story."""
    return {one["id"]: one["status"] for one in ran.data["stories"]}


def state(stage: Stage, name: str, dialect: str) -> str:
    """Return the state file on a story's branch."""
    return git(stage.repo, "show", f"autopilot/{name}:_docs/stories/{name}/{FILES[dialect]}")


@BOTH
@pytest.mark.parametrize("dialect", ["rich", "pointer", "autodev"])
def test_two_greenfield_stories_through_everything(stage: Stage, dialect: str) -> None:
    """A question, a kill, an escalation, a boundary, a skip, a rollback and Ctrl-C on the way to done."""
    repo = stage.repo
    story(stage, "a", "greenfield", dialect, asks="Research", fails="Plan")
    story(stage, "b", "greenfield", dialect)
    first = play(stage, "run", stage.model)
    assert status(first) == {"a": "parked", "b": "parked"}, first.err
    assert "Which database?" in first.story("a")["reason"]
    assert "Decompose complete" in first.story("b")["reason"], "the boundary"
    assert run(repo, "decide", "a", "B").code == 0
    with started(repo, "resume", "--json", env=stage.env) as running:
        wait_until(lambda: "(Plan, attempt 1 of 2)" in running.err, what="Plan has begun", limit=PATIENCE)
        os.kill(running.pid, signal.SIGKILL)
        running.finish()
    second = play(stage, "resume")
    assert "Plan — 3 consecutive failures" in second.story("a")["reason"], second.err
    for name in "ab":
        assert run(repo, "decide", name, "A").code == 0
    assert run(repo, "rollback", "b", "Decompose", "--yes").code == 0
    with started(repo, "resume", "--json", env=stage.env) as running:
        wait_until(lambda: "(Decompose, attempt 1 of 2)" in running.err, what="again", limit=PATIENCE)
        running.send(signal.SIGINT)
        stopped = running.finish()
    assert stopped.code == 130
    assert "stopped" in status(stopped).values()
    third = play(stage, "resume")
    assert set(status(third).values()) == {"parked"}, third.err
    for name in "ab":
        assert "Decompose complete" in third.story(name)["reason"], third.err
        assert run(repo, "decide", name, "A").code == 0
    assert run(repo, "skip", "b", "Implement", "--yes").code == 0
    last = play(stage, "resume")
    assert status(last) == {"a": "done", "b": "done"}, last.err
    for name in "ab":
        assert "step: done" in state(stage, name, dialect)
        git(repo, "merge", "-q", "--no-edit", f"autopilot/{name}")
    assert not (repo / "_docs/stories/b/03_implementation/implementation_report_shop.md").exists()


@BOTH
@pytest.mark.parametrize(
    ("flow", "dialect"),
    [
        ("existing-code", "rich"),
        ("existing-code", "pointer"),
        ("existing-code", "autodev"),
        ("meta-repo", "autodev"),
    ],
)
def test_the_other_flows_two_at_a_time_in_one_tree(stage: Stage, flow: str, dialect: str) -> None:
    """Both flows from start to done in a shared tree, and again from an earlier step; the branches merge."""
    repo = stage.repo
    (repo / "main.py" if flow == "existing-code" else repo / ".gitmodules").write_text("# there\n")
    for name in "ab":
        story(stage, name, flow, dialect)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")
    shared = ("--bg-isolation=none", "--deconflict-paths=pkg/{id}/**", "--max-stories=2")
    ran = play(stage, "run", stage.model, *shared, "--cross-boundaries")
    assert status(ran) == {"a": "done", "b": "done"}, ran.err
    rolled = run(repo, "rollback", "a", BACK_TO[flow], "--yes")
    assert rolled.code == 0, rolled.err
    again = play(stage, "resume")
    assert status(again) == {"a": "done", "b": "done"}, again.err
    git(repo, "stash", "-q", "-u")
    for name in "ab":
        git(repo, "merge", "-q", "--no-edit", f"autopilot/{name}")


@BOTH
def test_a_flow_crosses_a_boundary_through_a_shard(stage: Stage, tmp_path: Path) -> None:
    """One CI job takes the story to its boundary; a clone with its branch continues there."""
    repo = stage.repo
    story(stage, "a", "greenfield")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "story")
    shards = tmp_path / "shards"
    shards.mkdir()
    ran = play(
        stage, "run", stage.model, "--only=a", "--shard-in", str(shards), "--shard-out", str(shards / "a")
    )
    assert status(ran) == {"a": "parked"}, ran.err
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    joined = run(clone, "aggregate", str(shards), "--branches")
    assert joined.code == 5, joined.err
    ended = run(clone, "run", stage.model, "--cross-boundaries", "--json", env=stage.env, limit=LONG)
    assert ended.story("a")["status"] == "done", ended.err
    assert "at step 6 (Implement)" in ended.err


@BOTH
def test_a_session_whose_context_is_full_ends_at_its_save_and_a_fresh_one_continues(stage: Stage) -> None:
    """Counted from what the real program streams: danger at 24 tool calls, ended by the save that follows."""
    repo = stage.repo
    stage.configure()
    settings = repo / "autopilot-multi.toml"
    settings.write_text(f"{settings.read_text()}[context]\ndanger-tools = 24\npatience = 30\n")
    story(stage, "a", "greenfield", "rich", crowded="Research")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "story")
    ran = play(stage, "run", stage.model)
    assert "Decompose complete" in ran.story("a")["reason"], ran.err
    assert "context limit: " in ran.err
    assert "tool calls; ended at its next save" in ran.err
    began = [line for line in ran.err.splitlines() if "(Research, attempt" in line]
    assert len(began) == 2, "one session was ended, a fresh one did the rest"
    assert all("attempt 1 of" in line for line in began), "it costs no attempt"

"""Real claude and codex, offline against a scripted model: each story ends as it should."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import run, write_story
from tests.agents.conftest import Stage, play
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

"""Real claude and codex on the workers of a cluster: a conversation that continues on another one."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import commit_stories, started, wait_until, write_story
from tests.cluster.machines import machines
from tests.real_agents.conftest import Stage
from tests.real_agents.stories import events, work_sessions

pytestmark = pytest.mark.agents


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_conversation_continues_on_another_worker(
    stage: Stage, agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill the next session resumes it elsewhere, where the program finds its own files."""
    stage.configure(bypass=agent == "claude")
    for name, value in stage.env.items():
        monkeypatch.setenv(name, value)
    gate = tmp_path / "gate"
    waits = {"sh": f"until test -f {gate}; do sleep 0.2; done"}
    acts: list[dict[str, Any]] = [waits, {"write": ["right.txt", "made"]}]
    body = stage.play("a", {"write": ["wrong.txt", "made"]}, told=("it is wrong", acts))
    verify = "test -f right.txt || { echo it is wrong; exit 1; }"
    write_story(stage.repo, "a", body=body, agent=agent, verify=verify)
    commit_stories(stage.repo)
    with (
        machines(tmp_path / "cluster", "one", "two", options=("--slots=1",)) as cluster,
        started(stage.repo, "--cluster", str(cluster.file), stage.model, "--no-base-check") as running,
    ):
        wait_until(lambda: _waits(stage) == 1, what="the second session waits", limit=120)
        (placed,) = events(stage.repo, "StoryPlaced")
        cluster.signal(placed["worker"], signal.SIGKILL)
        wait_until(lambda: _waits(stage) == 2, what="it goes on elsewhere", limit=120)
        gate.touch()
        ended = running.finish()
    assert ended.code == 0, ended.err
    talks = {record["conversation"] for record in work_sessions(stage.repo)}
    assert len(talks) == 1, "it is one conversation"
    assert stage.scene.requests_of("a")[-1]["scripts"] == 2, "which the model saw from its beginning"


def _waits(stage: Stage) -> int:
    """Return how many sessions have begun to wait."""
    return sum(each["scripts"] > 1 and each["step"] == 0 for each in stage.scene.requests_of("a"))

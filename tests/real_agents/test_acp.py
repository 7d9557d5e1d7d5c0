"""Real programs that speak the Agent Client Protocol: start, permission, resume, stop, missing sign-in."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.acceptance.program import Ran, processes_with, run, started, wait_until, write_story
from tests.conftest import git
from tests.real_agents.acp_programs import PROGRAMS, AcpProgram, acp_environment, acp_folder
from tests.real_agents.model import Scene, scripted_model
from tests.real_agents.programs import CannotInstallError
from tests.real_agents.stories import PATIENCE, alive, events, work_sessions

pytestmark = pytest.mark.agents
THREE = pytest.mark.parametrize("agent", ["claude-acp", "qwen-acp", "opencode-acp"])
FOUR = pytest.mark.parametrize("agent", ["claude-acp", "qwen-acp", "opencode-acp", "copilot-acp"])
ROUNDS = 5
TOGETHER = 4


class AcpStage(Struct, frozen=True, kw_only=True):
    """A repository, one agent's environment, and the model that it talks to."""

    repo: Path
    agent: str
    program: AcpProgram
    env: dict[str, str]
    scene: Scene

    def configure(self, *more: str) -> None:
        """Write and commit the settings."""
        lines = [*more, 'agent = "it"', 'base-check = "off"', "peer-abort = 1000", "[agents.it]"]
        lines += [f"acp = {json.dumps(self.program.command)}"]
        lines += [f'model = "{self.program.model}"'] if self.program.model else []
        lines += ['permissions = "bypass"'] if "# bypass" in more else []
        for tier in ("green", "warn", "degraded"):
            lines += [f"[tiers.{tier}]", "memory-gb = 0.1"]
        (self.repo / "autopilot-multi.toml").write_text("\n".join(lines))
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "--allow-empty", "-m", "settings")

    def story(self, name: str, *acts: dict[str, Any], told: tuple[str, Sequence[Any]] = ("", ())) -> None:
        """Write a story with a script."""
        script = {"id": name, "acts": acts} | ({"told": told} if told[0] else {})
        write_story(self.repo, name, body=f"Do as you are told.\n\nPLAY {json.dumps(script)}")

    def run(self, *arguments: str) -> Ran:
        """Run the program."""
        return run(self.repo, *arguments, "--json", env=self.env, limit=PATIENCE)


@pytest.fixture
def stage(tmp_path: Path, agent: str, repo: Path) -> Iterator[AcpStage]:
    """Return a repository in which one agent talks to the scripted model."""
    try:
        folder = acp_folder(agent)
    except CannotInstallError as error:
        pytest.skip(str(error))
    (tmp_path / "tmp").mkdir()
    with scripted_model() as (url, scene):
        env = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "TMPDIR": str(tmp_path / "tmp"),
            **acp_environment(agent, url, tmp_path / "home"),
        }
        yield AcpStage(repo=repo, agent=agent, program=PROGRAMS[agent], env=env, scene=scene)


@THREE
def test_a_story_with_permissions_and_a_retry_in_its_conversation(stage: AcpStage) -> None:
    """Edits and verify commands are allowed, another command is not, and a retry loads the conversation."""
    stage.configure('verify = ["test -f b.txt"]')
    forbidden = {"sh": "curl -s http://127.0.0.1:9/"}
    again = ("attempt 2 of", [{"write": ["b.txt", "made"]}, {"sh": "test -f b.txt"}])
    stage.story("a", {"write": ["a.txt", "made"]}, forbidden, told=again)
    ran = stage.run()
    assert (ran.story("a")["status"], ran.story("a")["attempt"]) == ("done", 2), ran.err
    assert "its agent was denied curl -s http://127.0.0.1:9/;" in ran.err
    first, second = work_sessions(stage.repo)
    assert first["conversation"] == second["conversation"]
    assert stage.scene.requests_of("a")[-1]["scripts"] == 2, "the model has seen both prompts"
    assert first["tool_uses"] >= 2
    assert first["input_tokens"]
    files = git(stage.repo, "ls-tree", "--name-only", "autopilot/a").split()
    assert {"a.txt", "b.txt"} <= set(files)


@FOUR
def test_twenty_stops_leave_no_process(stage: AcpStage) -> None:
    """Each session runs a tool that has left its process group; all of them are gone after each stop."""
    stage.configure("# bypass", "max-stories = 4", 'window = "fixed"')
    nap = f"timeout 300.{os.getpid()} tail -f /dev/null"
    mark = nap.replace(" ", "\0").partition("\0tail")[0]
    for _ in range(ROUNDS):
        for name in ("a", "b", "c", "d")[:TOGETHER]:
            stage.story(name, {"sh": f"setsid nohup {nap} > /dev/null 2>&1 & {nap}"})
        with started(stage.repo, "--again", "--json", env=stage.env) as running:
            wait_until(
                lambda: len(processes_with(mark)) >= 2 * TOGETHER, what="all tools run", limit=PATIENCE
            )
            running.send(signal.SIGTERM)
            ran = running.finish()
        assert ran.code == 143
        assert [story["status"] for story in ran.data["stories"]] == ["stopped"] * TOGETHER
        assert alive(ran.data["run_id"]) == []
        assert processes_with(mark) == []


@pytest.mark.parametrize("agent", ["copilot-signed-out"])
def test_a_missing_sign_in_is_said_at_once(stage: AcpStage) -> None:
    """No attempt is lost on it, and the way to sign in is named."""
    stage.configure()
    stage.story("a", {"write": ["a.txt", "made"]})
    ran = stage.run()
    assert (ran.story("a")["status"], ran.story("a")["sessions"]) == ("failed", 1), ran.err
    assert "Authentication required" in ran.story("a")["reason"]
    assert events(stage.repo, "AgentRefused")

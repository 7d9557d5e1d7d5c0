"""Real agent programs, installed once into a folder of their own, and a model that follows a script."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import git
from tests.real_agents.model import Scene, scripted_model
from tests.real_agents.programs import MODELS, CannotInstallError, arguments, environment, installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A repository, one agent's environment, and the model that it talks to."""

    repo: Path
    agent: str
    env: dict[str, str]
    scene: Scene
    url: str

    @property
    def model(self) -> str:
        """Name, as a flag, a model that the program accepts."""
        return f"--model={MODELS[self.agent]}"

    def play(
        self,
        script_id: str,
        *acts: dict[str, Any],
        faults: Sequence[dict[str, Any]] = (),
        told: tuple[str, Sequence[dict[str, Any]]] = ("", ()),
    ) -> str:
        """Return the body of a story with a script; `told` are words, and the acts that they lead to."""
        script = {"id": script_id, "acts": acts, "faults": faults, "toolless": self.agent == "aider"}
        script |= {"told": told} if told[0] else {}
        return f"Do as you are told.\n\nPLAY {json.dumps(script)}"

    def settings(
        self, *, bypass: bool = False, args: Sequence[str] = (), codex: Sequence[str] = (), **more: str
    ) -> str:
        """Return the settings; `codex` are further options of its provider, `more` plain ones."""
        every = json.dumps([*arguments(self.agent, self.url, codex), *args])
        # Whoever else works on this machine changes nothing here.
        lines = ["peer-abort = 1000"]
        lines += [f"{name.replace('_', '-')} = {value}" for name, value in more.items()]
        lines += [f"[agents.{self.agent}]", f"args = {every}"]
        # Claude refuses this to root, unless it is told that it cannot do any harm.
        lines += ['permissions = "bypass"', 'env = { IS_SANDBOX = "1" }'] if bypass else []
        for tier in ("green", "warn", "degraded"):
            lines += [f"[tiers.{tier}]", "memory-gb = 0.1", "peers = 1000"]
        return "\n".join(lines) + "\n"

    def configure(
        self, *, bypass: bool = False, args: Sequence[str] = (), codex: Sequence[str] = (), **more: str
    ) -> None:
        """Write and commit the settings."""
        text = self.settings(bypass=bypass, args=args, codex=codex, **more)
        (self.repo / "autopilot-multi.toml").write_text(text)
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "--allow-empty", "-m", "settings")


@pytest.fixture
def stage(tmp_path: Path, agent: str, repo: Path) -> Iterator[Stage]:
    """Return a repository in which one agent talks to the scripted model, with settings to match."""
    try:
        folder = installed(agent)
    except CannotInstallError as error:
        pytest.skip(str(error))
    # Codex has no sandbox when its home lies below the temporary folder.
    (tmp_path / "tmp").mkdir()
    with scripted_model() as (url, scene):
        env = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "TMPDIR": str(tmp_path / "tmp"),
            **environment(agent, url, tmp_path / "home"),
        }
        # Aider looks for these in git's files alone, and would write them itself.
        git(repo, "config", "user.name", "Test")
        git(repo, "config", "user.email", "test@example.com")
        stage = Stage(repo=repo, agent=agent, env=env, scene=scene, url=url)
        stage.configure()
        yield stage

"""Real agent programs, installed once into a folder of their own, and a model that follows a script."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.model import Scene, scripted_model
from tests.conftest import git

ROOT = Path(__file__).parent.parent.parent
PREFIX = Path(os.environ.get("AGENTS_PREFIX", ROOT / ".venv" / "agents"))
PACKAGES = {"claude": "@anthropic-ai/claude-code@2.1.197", "codex": "@openai/codex@0.166.0"}
INSTALL_SECONDS = 600


def _program(name: str) -> Path:
    return PREFIX / "node_modules" / ".bin" / name


@pytest.fixture(scope="session")
def programs() -> Path:
    """Install the programs with npm where they are missing; skips where that cannot be done."""
    missing = [package for name, package in PACKAGES.items() if not _program(name).exists()]
    if missing and shutil.which("npm") is None:
        pytest.skip("npm is not installed, so the agent programs cannot be")
    if missing:
        PREFIX.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["npm", "install", "--prefix", str(PREFIX), "--no-fund", "--no-audit", *missing],
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS,
        )
        if done.returncode:
            pytest.skip(f"the agent programs cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return PREFIX / "node_modules" / ".bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A repository, the agents' environment, and the model that they talk to."""

    repo: Path
    env: dict[str, str]
    scene: Scene
    url: str


@pytest.fixture
def stage(tmp_path: Path, programs: Path, repo: Path) -> Iterator[Stage]:
    """Give a repository in which claude and codex talk to the scripted model, with settings to match."""
    for name in ("tmp", "home"):
        (tmp_path / name).mkdir(exist_ok=True)
    with scripted_model() as (url, scene):
        env = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            # Codex has no sandbox when its home lies below the temporary folder.
            "TMPDIR": str(tmp_path / "tmp"),
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-ant-api03-scripted-0123456789",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "SCRIPTED_KEY": "scripted-key-0123456789",
        }
        configure(repo, url)
        yield Stage(repo=repo, env=env, scene=scene, url=url)


def configure(
    repo: Path, url: str, *, more: str = "", codex: tuple[str, ...] = (), bypass: bool = False
) -> None:
    """Write the settings; `codex` are further options of its provider."""
    options = ", ".join(
        (f'name="scripted", base_url="{url}/v1", env_key="SCRIPTED_KEY", wire_api="responses"', *codex)
    )
    args = ["--disable", "plugins", "--disable", "apps", "-c", 'model_provider="scripted"']
    args += ["-c", f"model_providers.scripted={{{options}}}"]
    free = 'permissions = "bypass"\n' if bypass else ""
    quoted = ", ".join(f"'{part}'" for part in args)
    (repo / "autopilot-multi.toml").write_text(
        f"{more}\n[agents.codex]\nargs = [{quoted}]\n{free}[tiers.green]\nmemory-gb = 0.1\n"
        "[tiers.warn]\nmemory-gb = 0.1\n[tiers.degraded]\nmemory-gb = 0.1\n"
    )
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", "settings")


def play(script_id: str, *acts: dict[str, Any], faults: tuple[dict[str, Any], ...] = ()) -> str:
    """Give the body of a story that holds a script."""
    script = {"id": script_id, "acts": list(acts), "faults": list(faults)}
    return f"Do as you are told.\n\nPLAY {json.dumps(script)}"

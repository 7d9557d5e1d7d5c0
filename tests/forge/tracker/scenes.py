"""A repository whose story plans and decomposes, and a scripted tracker that the user has configured."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.acceptance.program import Ran, write_story
from tests.conftest import git

PLANNER, PLAIN, PACKAGE = (
    Path(__file__).with_name(f"{name}.py") for name in ("planner", "plain_server", "scripted_server")
)
TOKEN = "planted-secret-token-1234567890"  # noqa: S105  nothing knows it
STATE = "_docs/stories/a/_autodev_state.md"


class Scripted:
    """The scripted tracker of one test: its folder, and what the user's settings say about it."""

    def __init__(self, folder: Path, family: str = "jira", *, program: Path = PLAIN) -> None:
        self.folder = folder
        self.family = family
        self.program = program
        folder.mkdir()

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry in a file of MCP servers."""
        return {
            "command": sys.executable,
            "args": [str(self.program)],
            "env": {
                "TRACKER_FOLDER": str(self.folder),
                "TRACKER_FAMILY": self.family,
                "TRACKER_TOKEN": TOKEN,
            },
        }

    def set(self, *names: str) -> None:
        """Let it behave as these files say."""
        for name in names:
            (self.folder / name).touch()

    def unset(self, name: str) -> None:
        """Let it behave as without this file."""
        (self.folder / name).unlink()

    @property
    def items(self) -> list[dict[str, Any]]:
        """What it holds."""
        path = self.folder / "items.json"
        found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
        return found

    @property
    def calls(self) -> list[str]:
        """The tools that were called, in their order."""
        path = self.folder / "calls"
        return path.read_text().split() if path.exists() else []


def configure(**servers: dict[str, Any]) -> Path:
    """Write the user's own file of MCP servers."""
    path = Path(os.environ["XDG_CONFIG_HOME"], "autopilot-multi/mcp.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def planned_story(repo: Path, name: str = "a") -> None:
    """Write a story of the flow greenfield, done by the planner; it ends at the boundary after Decompose."""
    command = [sys.executable, "-I", "-S", str(PLANNER)]
    write_story(repo, name, flow="greenfield", command=command, max_attempts=1)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "story")


def tasks(repo: Path, name: str = "a") -> dict[str, str]:
    """Return the committed task files of a story with their texts."""
    branch, folder = f"autopilot/{name}", f"_docs/stories/{name}/02_tasks"
    names = git(repo, "ls-tree", "--name-only", f"{branch}:{folder}").split()
    return {one: git(repo, "show", f"{branch}:{folder}/{one}") for one in names}


def epics(repo: Path, name: str = "a") -> str:
    """Return the committed epics of a story."""
    return git(repo, "show", f"autopilot/{name}:_docs/stories/{name}/02_document/epics.md")


def ended_at_decompose(ran: Ran, name: str = "a") -> None:
    """Require that the story waits at the boundary after Decompose."""
    assert "Decompose complete" in ran.story(name)["reason"], ran.err


def with_token(folder: Path, token: str, *, except_in: str) -> list[Path]:
    """Return the files below a folder that hold a secret."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(except_in))
    return [path for path in files if token.encode() in path.read_bytes()]

"""Stories that follow a flow, done by the stand-in agent of `flow_agent`, and what they leave."""

import os
import sys
from pathlib import Path
from typing import Any

from runner.core.flow import Edition, artifact_parts
from runner.flows.catalog import load_flow
from tests.acceptance import flow_agent
from tests.acceptance.program import Ran, write_story
from tests.conftest import git

AUTODEV, AUTOPILOT = "_autodev_state.md", "_autopilot_state.md"


def story(
    repo: Path,
    name: str,
    *tricks: str,
    dialect: str = "autodev",
    flow: str = "greenfield",
    max_attempts: int = 4,
    script: str = "",
    **fields: Any,
) -> None:
    """Write a story that follows a flow, done by the stand-in agent.

    With `script`, each session is that shell script, which calls the agent as `"$@"`.
    """
    artifacts = write_artifacts(Path(os.environ["FLOW_AGENT_MEMORY"]), flow, dialect)
    command = [sys.executable, "-I", "-S", flow_agent.__file__, str(artifacts), *tricks]
    command = ["sh", "-c", script, "sh", *command] if script else command
    write_story(repo, name, flow=flow, dialect=dialect, command=command, max_attempts=max_attempts, **fields)


def write_artifacts(folder: Path, flow: str, dialect: str) -> Path:
    """Write what each step of a flow is to leave, for the stand-in agent."""
    path = folder / f"{flow}-{dialect}.txt"
    steps = load_flow(flow, Edition(dialect)).steps
    rows = [(one.number, *artifact_parts(artifact)) for one in steps for artifact in one.artifacts]
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def sessions(memory: Path) -> list[str]:
    """Return which sessions ran, in their order."""
    trace = memory / "trace"
    return trace.read_text().splitlines() if trace.exists() else []


def state_text(repo: Path, ran: Ran, name: str, file: str = AUTODEV) -> str:
    """Read a story's state file where it is: in its kept worktree, or on its branch."""
    workspace, path = ran.story(name)["workspace"], f"_docs/stories/{name}/{file}"
    if workspace:
        return (Path(workspace) / path).read_text()
    return git(repo, "show", f"autopilot/{name}:{path}")

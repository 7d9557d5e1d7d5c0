"""Sandboxes that conflict with each other: a warning where they do, and nowhere else."""

import pytest
from msgspec import structs
from msgspec.structs import replace

from isolation.model import IsolationMode
from runner.agents.known.aider import AiderAgent
from runner.agents.known.codex import CodexAgent
from runner.agents.protocol import Agent
from runner.agents.workers import Worker, Workers
from runner.core.agent_settings import AgentSettings
from runner.core.settings import Settings
from runner.plan.agent_conflicts import sandbox_conflicts
from tests.core.test_graph import story

CODEX, AIDER = CodexAgent(AgentSettings()), AiderAgent(AgentSettings())
SHARED = Settings(bg_isolation=IsolationMode.NONE, max_stories=3)


def _told(agents: tuple[Agent, ...], globs: tuple[str, ...], settings: Settings) -> list[str]:
    stories = [structs.replace(story(name), owns=(glob,)) for name, glob in zip("abc", globs, strict=False)]
    # An agent counts wherever it may work, be it only after a failed attempt.
    workers = (Workers(first=Worker(agent=AIDER), later=(Worker(agent=agent),)) for agent in agents)
    chosen = dict(zip((each.id for each in stories), workers, strict=False))
    return [conflict.line for conflict in sandbox_conflicts(stories, chosen, settings)]


def test_two_that_own_no_folder_are_reported() -> None:
    """Their number is named, and the way out."""
    (line,) = _told((CODEX, CODEX, CODEX), ("**/*.md", "**/*.txt", "docs/**"), SHARED)
    assert line.startswith("codex: 2 of its stories")
    assert "[agents.codex]" in line


@pytest.mark.parametrize(
    ("agents", "globs", "settings"),
    [
        ((CODEX, CODEX), ("**/*.md", "docs/**"), SHARED),
        ((CODEX, CODEX), ("a/**", "docs/**"), SHARED),
        ((AIDER, AIDER), ("**/*.md", "**/*.txt"), SHARED),
        ((CODEX, CODEX), ("**/*.md", "**/*.txt"), replace(SHARED, max_stories=1)),
        ((CODEX, CODEX), ("**/*.md", "**/*.txt"), replace(SHARED, bg_isolation=IsolationMode.WORKTREE)),
    ],
    ids=["one alone", "folders", "no sandbox", "one at a time", "worktrees"],
)
def test_no_warning_where_they_do_not_meet(
    agents: tuple[Agent, ...], globs: tuple[str, ...], settings: Settings
) -> None:
    """A warning that does not apply teaches users to ignore warnings."""
    assert _told(agents, globs, settings) == []

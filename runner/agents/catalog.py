"""Which agent does which story; decided before anything starts, so that a bad name costs nothing.

A new agent is a new file in `known/` and one line in `_CLASSES`.
"""

import shutil
from collections.abc import Mapping
from difflib import get_close_matches

from runner.agents.command import CommandAgent, TemplateAgent
from runner.agents.known.aider import AiderAgent
from runner.agents.known.claude import ClaudeAgent
from runner.agents.known.codex import CodexAgent
from runner.agents.known.gemini import GeminiAgent
from runner.agents.known.opencode import OpencodeAgent
from runner.agents.known.qwen import QwenAgent
from runner.agents.known_agent import KnownAgent
from runner.agents.protocol import Agent
from runner.core.agent_settings import AgentSettings
from runner.core.errors import AgentError
from runner.core.limits.agent_sessions import AgentProgram
from runner.core.model import Story
from runner.core.settings import Settings

AUTO = "auto"
_CLASSES: tuple[type[KnownAgent], ...] = (
    ClaudeAgent,
    CodexAgent,
    OpencodeAgent,
    GeminiAgent,
    QwenAgent,
    AiderAgent,
)
"""The agents that need no description, in the order in which `auto` looks for them."""

KNOWN: Mapping[str, type[KnownAgent]] = {agent.name: agent for agent in _CLASSES}
PROGRAMS = tuple(AgentProgram(name=agent.name, package=agent.package) for agent in _CLASSES)
"""How the known agents show up among the processes of a machine."""


def choose(story: Story, settings: Settings) -> Agent:
    """Return the agent of one story: its command, else the agent that it names, else the run's."""
    if story.command is not None:
        return CommandAgent()
    name = story.agent or settings.agent
    if name == AUTO:
        name = _found(story, settings)
    described = settings.agents.get(name, AgentSettings())
    # The user's own description wins, even under the name of a known agent.
    if described.argv:
        return TemplateAgent(name, described)
    if name not in KNOWN:
        raise AgentError(f"story {story.id}: agent '{name}' is not configured", hint=_way_out(name, settings))
    agent = KNOWN[name](described)
    _require_usable(story, agent, described)
    return agent


def _found(story: Story, settings: Settings) -> str:
    """Return the one agent that the user described, else the first known one that is installed."""
    own = sorted(name for name, agent in settings.agents.items() if agent.argv)
    if len(own) == 1:
        return own[0]
    if own:
        raise AgentError(
            f"story {story.id} has no `command`, and several agents are configured ({', '.join(own)}), "
            "but none was chosen",
            hint="name one with `agent:` in the story or with --agent.",
        )
    installed = next((name for name in KNOWN if shutil.which(name)), None)
    if installed is None:
        raise AgentError(
            f"story {story.id} has no `command`, and no agent is configured or installed",
            hint=f"install one of {', '.join(KNOWN)} so that it is on PATH, describe your own in "
            'autopilot-multi.toml: [agents.mine] argv = ["program", …] (the prompt comes on standard '
            "input), or give the story a `command:`.",
        )
    return installed


def _require_usable(story: Story, agent: KnownAgent, described: AgentSettings) -> None:
    """Raise where a known agent would only refuse to start."""
    name = agent.name
    # The session will be started with the agent's own variables, so its PATH is the one that counts.
    if shutil.which(name, path=described.env.get("PATH")) is None:
        raise AgentError(
            f"story {story.id}: agent '{name}' is not installed: no program '{name}' on PATH",
            hint=f"install it, name another agent, or say how to start it: [agents.{name}] argv = […].",
        )
    problem = agent.start_problem()
    if problem is not None:
        raise AgentError(f"story {story.id}: {problem.detail}", hint=problem.hint)


def _way_out(name: str, settings: Settings) -> str:
    close = get_close_matches(name, [*settings.agents, *KNOWN], n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return (
        f'describe it in autopilot-multi.toml: [agents.{name}] argv = ["{name}", …] '
        f"(the prompt comes on standard input), or use one of {', '.join(KNOWN)}."
    )

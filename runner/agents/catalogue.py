"""Which agent does which story; decided before anything starts, so that a bad name costs nothing."""

from difflib import get_close_matches

from runner.agents.command import CommandAgent, TemplateAgent
from runner.agents.protocol import Agent
from runner.core.errors import AgentError
from runner.core.model import Story
from runner.core.settings import Settings


def choose(story: Story, settings: Settings) -> Agent:
    """Give the agent of one story: its command, else the agent it names, else the run's."""
    if story.command is not None:
        return CommandAgent()
    name = story.agent or settings.agent
    if name == "auto" and len(settings.agents) == 1:
        name = next(iter(settings.agents))
    if name in settings.agents:
        return TemplateAgent(name, settings.agents[name])
    raise AgentError(_no_agent(story, name, settings), hint=_way_out(name, settings))


def _no_agent(story: Story, name: str, settings: Settings) -> str:
    if name == "auto":
        known = ", ".join(sorted(settings.agents))
        return f"story {story.id} has no `command`, and " + (
            f"several agents are configured ({known}): none was chosen" if known else "no agent is configured"
        )
    return f"story {story.id}: agent '{name}' is not configured"


def _way_out(name: str, settings: Settings) -> str:
    close = get_close_matches(name, settings.agents, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    if settings.agents:
        return "name one with `agent:` in the story or with --agent."
    table = name if name != "auto" else "claude"
    return (
        f'describe it in autopilot-multi.toml: [agents.{table}] argv = ["{table}", …] '
        "(the prompt comes on standard input), or give the story a `command:`."
    )

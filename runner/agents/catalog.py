"""Which agent does which story; decided before anything starts, so that a bad name costs nothing.

A new agent is a new file in `known/` and one line in `_CLASSES`.
"""

import shutil
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import PurePath

from msgspec import Struct, field

from runner.agents.acp.agent import AcpAgent
from runner.agents.command import CommandAgent, TemplateAgent
from runner.agents.known.aider import AiderAgent
from runner.agents.known.claude import ClaudeAgent
from runner.agents.known.codex import CodexAgent
from runner.agents.known.gemini import GeminiAgent
from runner.agents.known.opencode import OpencodeAgent
from runner.agents.known.qwen import QwenAgent
from runner.agents.known_agent import Endpoint, KnownAgent, SignIn
from runner.agents.protocol import Agent
from runner.agents.workers import Worker, Workers
from runner.core.agent_settings import AgentSettings
from runner.core.errors import AgentError
from runner.core.limits.agent_sessions import AgentProgram
from runner.core.limits.prices import has_price
from runner.core.model import Story
from runner.core.settings import Settings

AUTO = "auto"
NO_REVIEW = "off"
"""The reviewer of a story that has none although the run has one."""

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


def _started_by(arguments: Iterable[str]) -> tuple[type[KnownAgent], ...]:
    """Return the known agents that a command starts, by their own programs or by those that speak ACP."""
    names = {PurePath(word).name for word in arguments}
    return tuple(known for known in _CLASSES if names & {known.name, *known.acp_programs})


class Credentials(Struct, frozen=True, kw_only=True):
    """Which variables, by patterns, and which paths hold the credentials of an agent."""

    names: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


def credentials_of(agent: Agent, environ: Mapping[str, str]) -> Credentials:
    """Return the credentials of an agent; one of the user's own has those of agents it starts. Blocks."""
    ways: tuple[SignIn, ...] = ()
    arguments: tuple[str, ...] = ()
    if isinstance(agent, KnownAgent):
        ways, arguments = (agent.sign_in,), agent.arguments
    elif isinstance(agent, TemplateAgent | AcpAgent):
        arguments = agent.arguments
        ways = tuple(known.sign_in for known in _started_by(arguments))
    return Credentials(
        names=tuple(name for way in ways for name in way.names(environ, arguments)),
        places=tuple(place for way in ways for place in way.places(environ)),
    )


class Reachable(Struct, frozen=True, kw_only=True):
    """What an agent reaches in a sealed network, and the variables that keep it from asking other hosts."""

    entries: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def reachable_by(agent: Agent, environ: Mapping[str, str]) -> Reachable:
    """Return what an agent must reach; one of the user's own what the agents that it starts must. Blocks."""
    ways: tuple[Endpoint, ...] = ()
    arguments: tuple[str, ...] = ()
    if isinstance(agent, KnownAgent):
        ways, arguments, environ = (agent.endpoint,), agent.arguments, {**environ, **agent.environment}
    elif isinstance(agent, TemplateAgent | AcpAgent):
        arguments, environ = agent.arguments, {**environ, **agent.environment}
        ways = tuple(known.endpoint for known in _started_by(arguments))
    return Reachable(
        entries=tuple(entry for way in ways for entry in way.entries(environ, arguments)),
        variables={name: value for way in ways for name, value in way.quiet.items()},
    )


def workers_of(story: Story, settings: Settings) -> Workers:
    """Return who works on a story: its own agent, and those that it escalates to after failed attempts."""
    agents = choose(story, settings)
    first, *others = (Worker(agent=agent, model=_model_of(agent.name, settings)) for agent in agents)
    reviewer = _reviewer(first, story, settings)
    if story.command is not None:
        return Workers(first=first, reviewer=reviewer)
    entries = settings.escalate if story.escalate is None else story.escalate
    later = tuple(_later(entry, first, story, settings, key="escalate") for entry in entries)
    return Workers(first=first, later=later, others=tuple(others), reviewer=reviewer)


def _reviewer(first: Worker, story: Story, settings: Settings) -> Worker | None:
    """Return the agent that reviews the work of a story; None if there is no review."""
    entry = settings.review if story.review is None else story.review
    if not entry or entry == NO_REVIEW:
        return None
    if isinstance(first.agent, CommandAgent) and entry.startswith(":"):
        raise AgentError(
            f"story {story.id}: review: '{entry}' is a model, but the story has no agent",
            hint="name the agent that reads it: agent, or agent:model.",
        )
    return _later(entry, first, story, settings, key="review")


def _model_of(name: str, settings: Settings) -> str:
    """Return the model of an agent: its own, else the run's unless the run has another agent."""
    own = settings.agents.get(name, AgentSettings()).model
    mine = _names(settings.agent)[:1] in ([AUTO], [name]) or name == CommandAgent.name
    return own or (settings.model if mine else "")


def require_clear_models(workers: Iterable[Workers], settings: Settings) -> None:
    """Raise where the run's model would go to several agents, of which at most one knows it."""
    firsts = {one.first.agent.name: one.first for one in workers if one.first.agent.name in KNOWN}
    asked = sorted(name for name in firsts if not settings.agents.get(name, AgentSettings()).model)
    if settings.model and settings.agent == AUTO and len(asked) > 1:
        raise AgentError(
            f"model '{settings.model}' would go to several agents: {', '.join(asked)}",
            hint=f'give an agent its own: [agents.{asked[-1]}] model = "…"; or name with --agent the one '
            "that the model is for.",
        )


def require_prices(workers: Iterable[Workers], settings: Settings) -> tuple[str, ...]:
    """Say whose cost is unknown; a cost budget that cannot hold for that reason needs the user's consent."""
    every = [worker for one in workers for worker in one.everybody]
    unpriced = [
        worker
        for worker in every
        if not isinstance(worker.agent, CommandAgent)
        and not worker.agent.traits.reports_cost
        and not has_price(worker.model, settings.prices)
    ]
    if settings.cost_budget is None and settings.story_cost_budget is None:
        # A program that reports nothing has no cost in any case.
        heard = _listed(worker for worker in unpriced if worker.agent.traits.streams)
        return (f"the price of {heard} is unknown: tokens will be counted, no cost",) if heard else ()
    if not unpriced:
        return ()
    words = f"the cost budget cannot limit {_listed(unpriced)}: what that costs is unknown"
    if settings.allow_unpriced:
        return (words,)
    raise AgentError(
        words,
        hint="name a model with a price (--model, [agents.NAME] model), give its price under [prices], use "
        "--token-budget, or start anyway with --allow-unpriced.",
    )


def _listed(workers: Iterable[Worker]) -> str:
    """Name workers with their models."""
    named = {
        f"{worker.agent.name} with {f'model {worker.model}' if worker.model else 'a model that is not named'}"
        for worker in workers
    }
    return ", ".join(sorted(named))


def choose(story: Story, settings: Settings) -> tuple[Agent, ...]:
    """Return the agents of one story: its command, else those that it names, else the run's."""
    if story.command is not None:
        return (CommandAgent(),)
    chosen = [_chosen(name, story, settings) for name in _names(story.agent or settings.agent)]
    return tuple({agent.name: agent for agent in chosen}.values())


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())] or [text]


def _chosen(name: str, story: Story, settings: Settings) -> Agent:
    if name == AUTO:
        name = _found(story, settings)
    if not _is_configured(name, settings):
        raise AgentError(f"story {story.id}: agent '{name}' is not configured", hint=_way_out(name, settings))
    return _made(name, story, settings)


def _later(entry: str, first: Worker, story: Story, settings: Settings, *, key: str) -> Worker:
    """Read an entry of `escalate` or `review`: `agent`, `agent:model`, or `:model` of the story's agent."""
    name, _, model = (part.strip() for part in entry.partition(":"))
    if not name and not model:
        raise AgentError(
            f"story {story.id}: {key}: '{entry}' names neither an agent nor a model",
            hint="an entry is agent, agent:model, or :model for the story's own agent.",
        )
    if name and not _is_configured(name, settings):
        hint = _way_out(name, settings, usable=True)
        raise AgentError(
            f"story {story.id}: {key}: agent '{name}' is not configured",
            hint=f"{hint} For another model of the story's own agent, write ':{name}'.",
        )
    agent = _made(name, story, settings) if name else first.agent
    if model and isinstance(agent, TemplateAgent) and not agent.takes_model:
        raise AgentError(
            f"story {story.id}: {key}: agent '{agent.name}' cannot be given the model '{model}'",
            hint=f'put {{model}} into its argv: [agents.{agent.name}] argv = ["…", "{{model}}"].',
        )
    # The run's model is that of the story's own agent; another one would not know it.
    own = settings.agents.get(agent.name, AgentSettings()).model
    return Worker(agent=agent, model=model or (first.model if agent.name == first.agent.name else own))


def _is_configured(name: str, settings: Settings) -> bool:
    described = settings.agents.get(name, AgentSettings())
    return name in KNOWN or bool(described.argv or described.acp)


def _made(name: str, story: Story, settings: Settings) -> Agent:
    described = settings.agents.get(name, AgentSettings())
    # The user's own description wins, even under the name of a known agent.
    if described.argv:
        return TemplateAgent(name, described)
    if described.acp:
        related = (known(AgentSettings()) for known in _started_by(described.acp))
        return AcpAgent(name, described, obeys=tuple(file for one in related for file in one.traits.obeys))
    agent = KNOWN[name](described)
    _require_usable(story, agent, described)
    return agent


def _found(story: Story, settings: Settings) -> str:
    """Return the one agent that the user described, else the first known one that is installed."""
    own = sorted(name for name, agent in settings.agents.items() if agent.argv or agent.acp)
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


def _way_out(name: str, settings: Settings, *, usable: bool = False) -> str:
    """Return what to write instead; with `usable` also which names there are."""
    names = list(dict.fromkeys([*settings.agents, *KNOWN]))
    close = get_close_matches(name, names, n=1)
    allowed = f" Allowed: {', '.join(names)}." if usable else ""
    if close:
        return f"did you mean '{close[0]}'?{allowed}"
    if usable:
        return allowed.strip()
    return (
        f'describe it in autopilot-multi.toml: [agents.{name}] argv = ["{name}", …] '
        f"(the prompt comes on standard input), or use one of {', '.join(KNOWN)}."
    )

"""The tables `agents` and `prices` of the settings: agents of the user, and what models cost."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Struct, field

from runner.core.declaration import Bounds, Setting

_PATH = "the name of a key, with dots into objects"
_ARGUMENTS = "a list of texts: the program and its arguments"


class EventKeys(Struct, frozen=True, kw_only=True):
    """The keys of an agent's `events`. An agent keeps only those that are given, as a mapping."""

    session: Annotated[
        str, Setting(help="the name of the conversation, for `resume`", expects=_PATH, filled=True)
    ] = ""
    message: Annotated[
        str, Setting(help="what is shown as the session's newest line", expects=_PATH, filled=True)
    ] = ""
    input_tokens: Annotated[
        str, Setting(help="how many tokens the agent has read", expects=_PATH, filled=True)
    ] = ""
    output_tokens: Annotated[
        str, Setting(help="how many tokens the agent has written", expects=_PATH, filled=True)
    ] = ""
    cost: Annotated[str, Setting(help="what this cost in US dollars", expects=_PATH, filled=True)] = ""
    usage: Annotated[
        str,
        Setting(
            help="not a key: `last` (the default) if each line reports a total, `sum` if each reports a part",
            choices=("last", "sum"),
        ),
    ] = "last"


class AgentSettings(Struct, frozen=True, kw_only=True):
    """An agent: the user's own if it has an `argv` or `acp`, otherwise changes to a known agent.

    Placeholders in `argv` and `resume` are {id} {title} {workspace} {session} {model}. `args` come last.
    """

    argv: Annotated[
        tuple[str, ...],
        Setting(
            help="the program of an agent of your own, and its arguments",
            details="Required unless the name is that of a [known agent](../how-to/use-a-known-agent.md). "
            "`{id}`, `{title}`, `{workspace}`, `{session}` and `{model}` are replaced; other braces stay.",
            expects=_ARGUMENTS,
            filled=True,
        ),
    ] = ()
    acp: Annotated[
        tuple[str, ...],
        Setting(
            help="instead of `argv`: a program that speaks the Agent Client Protocol",
            details="See [agents that speak ACP](../how-to/use-an-acp-agent.md). `{model}` is replaced; "
            "without it, the agent is asked for the model by the protocol.",
            expects=_ARGUMENTS,
            filled=True,
        ),
    ] = ()
    resume: Annotated[
        tuple[str, ...],
        Setting(
            help="the same, to continue the conversation that `{session}` names",
            details="Without it every session starts a new conversation.",
            expects=_ARGUMENTS,
        ),
    ] = ()
    args: Annotated[
        tuple[str, ...], Setting(help="more arguments, after all others", expects=_ARGUMENTS)
    ] = ()
    env: Annotated[
        Mapping[str, str],
        Setting(
            help="variables to add to the session's environment",
            expects="a table of variables with text values",
        ),
    ] = field(default_factory=dict)
    model: Annotated[
        str,
        Setting(
            help="the model of this agent, instead of the run's `model`",
            details="For a run with several agents, since none of them knows the models of another.",
            filled=True,
        ),
    ] = ""
    permissions: Annotated[
        str,
        Setting(
            help="what a known agent may do without asking",
            details="`edit` by default, see [permissions](../how-to/use-a-known-agent.md#permissions).",
            choices=("edit", "bypass"),
        ),
    ] = "edit"
    events: Annotated[
        Mapping[str, str],
        Setting(help="where the JSON lines of your own agent hold what, see below", table=EventKeys),
    ] = field(default_factory=dict)


_DOLLARS = "US dollars for a million tokens, 0 or more"
_NOT_NEGATIVE = Bounds(low=0, clamped=False)


class Price(Struct, frozen=True, kw_only=True):
    """What a million tokens of a model cost in US dollars."""

    input: Annotated[float, Setting(help="input", expects=_DOLLARS, required=True, bounds=_NOT_NEGATIVE)]
    output: Annotated[float, Setting(help="output", expects=_DOLLARS, required=True, bounds=_NOT_NEGATIVE)]
    cached: Annotated[
        float | None,
        Setting(
            help="input that was read from a cache; without it, the price of input",
            expects=_DOLLARS,
            bounds=_NOT_NEGATIVE,
        ),
    ] = None

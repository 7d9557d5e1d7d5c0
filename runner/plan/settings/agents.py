"""What a settings file may say of agents and prices: checked here, and turned into values."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from runner.core.settings import AgentSettings, Price


def _filled(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError("must not be empty")
    return text


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("must have names of variables as keys")
    return name


Text = Annotated[str, AfterValidator(_filled)]
Dollars = Annotated[float, Field(allow_inf_nan=False, ge=0)]


class _Table(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, alias_generator=lambda name: name.rstrip("_").replace("_", "-")
    )


class Events(_Table):
    """Under which key of a JSON line what is found; dots lead into objects."""

    session: Text = ""
    message: Text = ""
    input_tokens: Text = ""
    output_tokens: Text = ""
    cost: Text = ""
    usage: Literal["last", "sum"] = "last"


class Agent(_Table):
    """One table under `agents`."""

    argv: Annotated[list[Text], Field(min_length=1)] = []
    resume: list[Text] = []
    args: list[Text] = []
    env: dict[Annotated[str, AfterValidator(_variable)], str] = {}
    permissions: Literal["edit", "bypass"] = "edit"
    events: Events = Events()


class PriceRow(_Table):
    """One table under `prices`: US dollars for a million tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None


def siblings(keys: tuple[str, ...]) -> tuple[str, ...]:
    """List what may stand beside an unknown key, which is the last of `keys`."""
    table: type[BaseModel] = Agent if keys[0] == "agents" else PriceRow
    if keys[2:3] == ("events",) and len(keys) > 3:  # noqa: PLR2004  the table, the agent, `events`, the key
        table = Events
    return tuple(item.alias or name for name, item in table.model_fields.items())


def wanted(keys: tuple[str, ...]) -> str:  # noqa: PLR0911  one return a key
    """Say what is allowed under these keys."""
    match keys:
        case ("agents", _, "env", *_):
            return "a table of variables with text values"
        case ("agents", _, "permissions"):
            return '"edit" or "bypass"'
        case ("agents", _, "events", "usage"):
            return '"last" or "sum"'
        case ("agents", _, "events", _):
            return "the name of a key, with dots into objects"
        case ("agents", _, "argv" | "resume" | "args"):
            return "a list of texts: the program and its arguments"
        case ("prices", _, _):
            return "US dollars for a million tokens, 0 or more"
        case _:
            return "a table"


def missing_in(name: str, agent: Agent) -> str:
    """Name the key that an agent's table lacks; empty when it is whole."""
    # Imported here, since most settings describe no agent.
    from runner.agents.catalogue import KNOWN

    described = {"resume", "events"} & agent.model_fields_set
    return "argv" if not agent.argv and (name not in KNOWN or described) else ""


def agent_settings(agent: Agent) -> AgentSettings:
    """Turn a checked table into the value that the runner uses."""
    events = {
        key.replace("_", "-"): value
        for key, value in agent.events.model_dump(exclude_unset=True).items()
        if value
    }
    return AgentSettings(
        argv=tuple(agent.argv),
        resume=tuple(agent.resume),
        args=tuple(agent.args),
        env=agent.env,
        permissions=agent.permissions,
        events=events,
    )


def price(row: PriceRow) -> Price:
    """Turn a checked row into a price."""
    return Price(input=row.input, output=row.output, cached=row.cached)

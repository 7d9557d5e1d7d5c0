"""What a setting may hold: one place's values are checked here, clamped, and built into `Settings`.

A place's values come in as plain data and leave flat, under dotted keys such as `max-stories`,
`hooks.before_run`, `agents.mine` or `tiers.warn.memory-gb`, so that places can be joined key by key.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from isolation.frozen import frozen
from runner.core.errors import RunnerError, SettingsError, UsageError
from runner.core.model import ContinuePolicy
from runner.core.settings import BOUNDS, HookSettings, Settings, key_of
from runner.core.text.names import did_you_mean, shown
from runner.plan.settings import agents as config_agents
from runner.plan.settings import tiers as config_tiers

INTEGERS = frozenset(
    {
        "max-stories",
        "max-sessions",
        "token-budget",
        "story-token-budget",
        "session-tokens",
        "log-cap-mb",
        "agents-per-wave",
        "peer-abort",
    }
)
FLOATS = frozenset(
    {
        "max-hours",
        "inactivity-timeout",
        "stall-seconds",
        "confidence-threshold",
        "cost-budget",
        "story-cost-budget",
        "session-cost",
        "grace-seconds",
        "memory-per-story-gb",
    }
)
SPENDING = frozenset(key for key in INTEGERS | FLOATS if key.endswith("-budget")) | {
    "session-tokens",
    "session-cost",
}
TABLES = frozenset({"hooks", "agents", "prices", "tiers"})
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "bg-isolation": ("worktree", "none"),
    "enforce": ("auto", "divert", "deny", "detect"),
    "continue": tuple(policy.value for policy in ContinuePolicy),
    "dialect": ("rich", "pointer", "autodev"),
    "decide-default": ("ask", "recommended"),
    "tracker": ("jira", "ado", "local"),
    "cross-boundaries": ("true", "false"),
    "guard": ("true", "false"),
    "window": ("adaptive", "fixed"),
}
_LISTS: Mapping[str, str] = {
    "verify": "a command or a list of commands",
    "deconflict-paths": "a glob, a pattern with {id}, ID=GLOB, or a list of these",
    "symlink-directories": "a list of folders inside the repository",
    "shared-writable": "a glob or a list of globs",
}
_EXAMPLES: Mapping[str, str] = {
    "token-budget": "2000000",
    "cost-budget": "25",
    "story-token-budget": "200000",
    "story-cost-budget": "3",
    "session-tokens": "80000",
    "session-cost": "1.5",
    "verify": "make test",
    "deconflict-paths": "packages/{id}/**",
    "symlink-directories": "node_modules",
    "shared-writable": "**/build/**",
    "model": "opus",
    "prompt-template": "tools/prompt.md",
    "worktree-root": "../worktrees",
}


KEYS = tuple(key_of(item.name) for item in fields(Settings))


class Kind(Enum):
    """What sort of place a value came from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"


@frozen
class Place:
    """A place that holds settings; `file` names it if it is one."""

    kind: Kind
    file: str = ""

    def name(self, key: str) -> str:
        """Name a key as it is written in this place."""
        match self.kind:
            case Kind.FLAG:
                return f"--{key}"
            case Kind.ENVIRONMENT:
                return f"AUTOPILOT_MULTI_{key.upper().replace('-', '_')}"
            case Kind.FILE:
                return f"{self.file}: {key}"

    def origin(self, key: str) -> str:
        """Tell where a value came from, for people."""
        return self.file if self.kind is Kind.FILE else f"{self.kind.value} {self.name(key)}"

    def error(self, message: str, hint: str) -> RunnerError:
        """Make the error for a value of this place."""
        return (UsageError if self.kind is Kind.FLAG else SettingsError)(message, hint=hint)


def _filled(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError("must not be empty")
    return text


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _off(value: Any) -> Any:
    # YAML reads the word off as false.
    return None if value is False or value == "off" else value


def _switch(value: Any) -> Any:
    """Read a switch as people write it in the environment and on the command line."""
    words = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _positive(number: float | None) -> float | None:
    if number is not None and number <= 0:
        raise ValueError("must be above 0")
    return number


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if path.startswith("/") or not parts or ".." in parts or parts[0] == ".git":
        raise ValueError("must name folders inside the repository")
    return path


Text = Annotated[str, AfterValidator(_filled)]
Texts = Annotated[list[Text], BeforeValidator(_listed)]
Folders = Annotated[list[Annotated[Text, AfterValidator(_inside)]], BeforeValidator(_listed)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Tokens = Annotated[int | None, BeforeValidator(_off), AfterValidator(_positive)]
Dollars = Annotated[Number | None, BeforeValidator(_off), AfterValidator(_positive)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=key_of)


class _Hooks(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    after_create: str = ""
    before_run: str = ""
    after_run: str = ""
    before_remove: str = ""


class _Values(_Table):
    """One place's values; only those that were given count, so the defaults here mean nothing."""

    stories: Text = ""
    agent: Text = ""
    model: str = ""
    prompt_template: str = ""
    verify: Texts = []
    max_stories: int = 0
    max_sessions: int = 0
    max_hours: Number = 0
    inactivity_timeout: Number = 0
    stall_seconds: Number = 0
    confidence_threshold: Number = 0
    token_budget: Tokens = None
    cost_budget: Dollars = None
    story_token_budget: Tokens = None
    story_cost_budget: Dollars = None
    session_tokens: Tokens = None
    session_cost: Dollars = None
    peer_abort: int = 0
    selector: str = ""
    bg_isolation: Literal["worktree", "none"] = "worktree"
    deconflict_paths: Texts = []
    guard: Annotated[bool, BeforeValidator(_switch)] = True
    enforce: Literal["auto", "divert", "deny", "detect"] = "auto"
    shared_writable: Texts = []
    base: Text = ""
    continue_: Literal["never", "dependencies-successful", "always"] = "never"
    grace_seconds: Number = 0
    log_cap_mb: int = 0
    agents_per_wave: int = 0
    window: Literal["adaptive", "fixed"] = "adaptive"
    memory_per_story_gb: Number = 0
    worktree_root: str = ""
    symlink_directories: Folders = []
    dialect: Literal["rich", "pointer", "autodev"] = "autodev"
    cross_boundaries: Annotated[bool, BeforeValidator(_switch)] = False
    decide_default: Literal["ask", "recommended"] = "ask"
    notify: str = ""
    tracker: Literal["", "jira", "ado", "local"] = ""
    tracker_auth: str = ""
    hooks: _Hooks = _Hooks()
    agents: dict[Text, config_agents.Agent] = {}
    prices: dict[Text, config_agents.PriceRow] = {}
    tiers: config_tiers.Tiers = config_tiers.Tiers()


def checked(values: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Check one place's values and give them flat; what is wrong names the place, key and value."""
    given = {key: value for key, value in values.items() if value is not None}
    if isinstance(given.get("hooks"), dict):
        given["hooks"] = {str(name).replace("-", "_"): text for name, text in given["hooks"].items()}
    try:
        model = _Values.model_validate(given)
    except ValidationError as error:
        _complain(error, place)
    flat: dict[str, Any] = {}
    for name in model.model_fields_set - TABLES:
        value = getattr(model, name)
        flat[key_of(name)] = tuple(value) if isinstance(value, list) else value
    flat.update({f"hooks.{name}": getattr(model.hooks, name) for name in model.hooks.model_fields_set})
    for name, agent in model.agents.items():
        missing = config_agents.missing_in(name, agent)
        if missing:
            _complain_of_missing(f"agents.{name}.{missing}", place)
        flat[f"agents.{name}"] = config_agents.agent_settings(agent)
    flat.update({f"prices.{name}": config_agents.price(row) for name, row in model.prices.items()})
    flat.update(config_tiers.flattened(model.tiers))
    return dict(sorted(flat.items()))


def clamped(key: str, value: Any, place: Place) -> tuple[Any, str | None]:
    """Bring a number into its bounds; when it was outside, say so."""
    bounds = BOUNDS.get(key)
    if bounds is None or bounds.low <= value <= bounds.high:
        return value, None
    limit, side = (bounds.low, "below") if value < bounds.low else (bounds.high, "above")
    unit = f" {bounds.unit}" if bounds.unit else ""
    note = f"{place.name(key)} {value:g} is {side} {limit:g}{unit}; using {limit:g}{unit}"
    return type(value)(limit), note


def build(flat: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    """Build the settings from the joined values; tables that contradict themselves are refused."""
    default = Settings()
    plain = {item.name: flat[key_of(item.name)] for item in fields(Settings) if key_of(item.name) in flat}
    if "continue_" in plain:
        plain["continue_"] = ContinuePolicy(plain["continue_"])
    return replace(
        default,
        **plain,
        hooks=HookSettings(**_under("hooks.", flat)),
        agents=_under("agents.", flat),
        prices=_under("prices.", flat),
        tiers=config_tiers.built(flat, origins),
    )


def _under(prefix: str, flat: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in flat.items() if key.startswith(prefix)}


def _complain(error: ValidationError, place: Place) -> NoReturn:
    """Turn pydantic's first complaint into ours."""
    first = error.errors(include_url=False)[0]
    keys = tuple(str(part) for part in first["loc"] if not isinstance(part, int) and part != "[key]")
    dotted, value = ".".join(keys), first["input"]
    if first["type"] == "extra_forbidden":
        known = _siblings(keys)
        hint = did_you_mean(keys[-1], known) or f"known here: {', '.join(known)}."
        name = place.file if place.kind is Kind.FILE else place.origin(dotted)
        raise place.error(f"{name}: unknown key '{dotted}'", hint)
    if first["type"] == "missing":
        _complain_of_missing(dotted, place)
    odd = ", which holds a NUL character" if isinstance(value, str) and "\0" in value else ""
    message = f"{place.name(dotted)} must be {_wanted(keys)}, not {shown(value)}{odd}"
    raise place.error(message, _hint(keys, value, place))


def _complain_of_missing(dotted: str, place: Place) -> NoReturn:
    needs = "a price needs input and output." if dotted.startswith("prices") else ""
    hint = needs or "an agent needs argv = [program, argument, …]."
    raise place.error(f"{place.name(dotted)} is missing", hint)


def _siblings(keys: tuple[str, ...]) -> tuple[str, ...]:
    if len(keys) == 1:
        return KEYS
    if keys[0] == "tiers":
        return config_tiers.siblings(keys)
    if keys[0] in {"agents", "prices"}:
        return config_agents.siblings(keys)
    return tuple(item.alias or name for name, item in _Hooks.model_fields.items())


def _wanted(keys: tuple[str, ...]) -> str:
    """Say what is allowed under these keys."""
    key = keys[0]
    if key in _CHOICES:
        return " or ".join(f'"{choice}"' for choice in _CHOICES[key])
    if key in SPENDING:
        kind = "a whole number" if key in INTEGERS else "a number"
        return f"{kind} above 0, or off"
    if key in BOUNDS:
        kind = "a whole number" if key in INTEGERS else "a number"
        return f"{kind} from {BOUNDS[key].low:g} to {BOUNDS[key].high:g}"
    if key in TABLES:
        return _wanted_in_table(keys)
    return _LISTS.get(key, "text that is not empty")


def _wanted_in_table(keys: tuple[str, ...]) -> str:
    match keys:
        case ("hooks", _):
            wanted = "a shell command"
        case ("agents" | "prices", *_):
            wanted = config_agents.wanted(keys)
        case ("tiers", *_):
            wanted = config_tiers.wanted(keys)
        case _:
            wanted = "a table"
    return wanted


def _hint(keys: tuple[str, ...], value: Any, place: Place) -> str:
    key = keys[0]
    nearest = did_you_mean(str(value), _CHOICES.get(key, ()))
    if nearest:
        return nearest
    if key in TABLES:
        return "`autopilot-multi config` shows the values that are used otherwise."
    default = getattr(Settings(), "continue_" if key == "continue" else key.replace("-", "_"))
    example = _EXAMPLES.get(key) or (f"{default:g}" if key in BOUNDS else str(default))
    match place.kind:
        case Kind.FLAG:
            return (
                f"for example --{key} {example!r}." if " " in example else f"for example --{key} {example}."
            )
        case Kind.ENVIRONMENT:
            return f"for example {place.name(key)}={example!r}."
        case Kind.FILE:
            quoted = example if key in INTEGERS | FLOATS else f'"{example}"'
            equals = ": " if place.file.endswith(".md") else " = "
            return f"for example {key}{equals}{quoted}."

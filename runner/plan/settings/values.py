"""One source's values are checked here, clamped, and later built into `Settings`.

A source's values come in as plain data and leave flat, under dotted keys such as `max-stories`,
`hooks.before_run`, `agents.mine` or `tiers.warn.memory-gb`, so that sources can be joined key by key.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from runner.core.declaration import Declared, declared_in, find
from runner.core.errors import RunnerError, SettingsError, UsageError
from runner.core.landing.message import PLACEHOLDERS, flaw
from runner.core.settings import BOUNDS, SETTINGS, Settings
from runner.core.text.names import did_you_mean, shown
from runner.core.text.unknown_keys import UnknownKey, message_and_hint
from runner.plan.settings.files import line_of
from runner.plan.settings.plain_values import of_type, plain_values
from runner.plan.settings.tiers import refuse_crossed

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


class SourceKind(Enum):
    """What sort of source a value came from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"


class Source(Struct, frozen=True, kw_only=True):
    """A source of settings; `file` is its name if it is one, and `text` what it holds if that is TOML."""

    kind: SourceKind
    file: str = ""
    text: str = ""

    def name(self, key: str) -> str:
        """Name a key as it is written in this source."""
        match self.kind:
            case SourceKind.FLAG:
                return f"--{key}"
            case SourceKind.ENVIRONMENT:
                return SETTINGS[key].variable
            case SourceKind.FILE:
                return f"{self.file}: {key}"

    def origin(self, key: str) -> str:
        """Say where a value came from."""
        return self.file if self.kind is SourceKind.FILE else f"{self.kind.value} {self.name(key)}"

    def place(self, keys: tuple[str, ...]) -> str:
        """Name the file, with the line of a key if that can be found."""
        line = line_of(keys, self.text)
        return f"{self.file}:{line}" if line else self.file

    def error(self, message: str, hint: str) -> RunnerError:
        """Make the error for a value of this source."""
        return (UsageError if self.kind is SourceKind.FLAG else SettingsError)(message, hint=hint)


class UnknownSettingsError(SettingsError):
    """Files of settings have keys that are not settings."""

    def __init__(self, keys: Sequence[UnknownKey]) -> None:
        message, hint = message_and_hint(keys)
        super().__init__(message, hint=hint)
        self.keys = tuple(keys)


def checked(values: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Check one source's values and return them flat; an error names the source, the key and the value.

    Unknown keys are one error, `UnknownSettingsError`.
    """
    # YAML has keys without a value, which count as absent.
    given = {key: value for key, value in values.items() if value is not None}
    if isinstance(given.get("hooks"), dict):
        given["hooks"] = {str(name).replace("-", "_"): text for name, text in given["hooks"].items()}
    plain = plain_values(given)
    if plain is not None:
        return dict(sorted(plain.items()))
    from pydantic import ValidationError

    try:
        model = _model_of(frozenset(given)).model_validate(given)
    except ValidationError as error:
        _refuse(error, source)
    for name, agent in (getattr(model, "agents", None) or {}).items():
        _require_argv(name, agent, source)
    return dict(sorted(_flattened(SETTINGS.values(), model)))


@cache
def _model_of(given: frozenset[str]) -> "type[BaseModel]":
    """Return the model of the settings that are given: making one of all of them takes longer than a plan."""
    from runner.plan.settings.model import model_of

    return model_of("Settings", (item for item in SETTINGS.values() if item.key in given))


def clamped(key: str, value: Any, source: Source) -> tuple[Any, str | None]:
    """Bring a number into its bounds; if it was outside, also return a note."""
    bounds = BOUNDS.get(key)
    if bounds is None or value is None or bounds.low <= value <= bounds.high:
        return value, None
    limit, side = (bounds.low, "below") if value < bounds.low else (bounds.high, "above")
    unit = f" {bounds.unit}" if bounds.unit else ""
    note = f"{source.name(key)} {shown(value)} is {side} {limit:g}{unit}; using {limit:g}{unit}"
    return type(value)(limit), note  # a whole number stays whole


def build(flat: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    """Build the settings from the joined values; refuses what contradicts itself."""
    settings: Settings = _built(Settings(), SETTINGS.values(), flat)
    refuse_crossed(settings.tiers, origins)
    if found := flaw(settings.land_message):
        raise SettingsError(
            f"{origins.get('land-message', '')}: land-message {found}",
            hint=f"known are: {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}.",
        )
    return settings


def _built(default: Any, declared: Iterable[Declared], flat: Mapping[str, Any], prefix: str = "") -> Any:
    changes: dict[str, Any] = {}
    for item in declared:
        key = prefix + item.key
        if item.has_named_entries:
            entries = {name.removeprefix(f"{key}."): name for name in flat if name.startswith(f"{key}.")}
            changes[item.field] = {entry: flat[name] for entry, name in entries.items()}
        elif item.table is not None:
            inner = getattr(default, item.field)
            changes[item.field] = _built(inner, declared_in(item.table), flat, f"{key}.")
        elif key in flat:
            changes[item.field] = flat[key]
    return replace(default, **changes)


def _flattened(
    declared: Iterable[Declared], model: "BaseModel", prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for item in declared:
        if item.field not in model.model_fields_set:
            continue
        key, value = prefix + item.key, getattr(model, item.field)
        if item.table is None:
            yield key, _value(item, value)
        elif item.has_named_entries:
            yield from ((f"{key}.{name}", _entry(item.table, row)) for name, row in value.items())
        else:
            yield from _flattened(declared_in(item.table), value, f"{key}.")


def _entry(cls: type, row: "BaseModel") -> Any:
    """Turn a checked row, such as an agent, into the value that the runner uses."""
    given = [item for item in declared_in(cls) if item.field in row.model_fields_set]
    return cls(**{item.field: _value(item, getattr(row, item.field)) for item in given})


def _value(declared: Declared, value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel) and declared.table is not None:
        return dict(_flattened(declared_in(declared.table), value))
    return of_type(declared, value)


def _require_argv(name: str, agent: Any, source: Source) -> None:
    # Imported here, since most settings describe no agent.
    from runner.agents.catalog import KNOWN

    described = {"resume", "events"} & agent.model_fields_set
    if agent.argv and agent.acp:
        message = f"{source.name(f'agents.{name}')} has both `argv` and `acp`"
        raise source.error(message, "`acp` is for a program that speaks the protocol; remove one of them.")
    if agent.acp and described:
        message = f"{source.name(f'agents.{name}')}: `acp` needs no `{min(described)}`: the protocol has it"
        raise source.error(message, f"remove `{min(described)}`.")
    if not agent.argv and not agent.acp and (name not in KNOWN or described):
        _refuse_missing(f"agents.{name}.argv", source)


def _refuse(error: "ValidationError", source: Source) -> NoReturn:
    """Turn pydantic's errors into one of ours: all unknown keys, else the first wrong value."""
    # In the order of the file; pydantic reports unknown keys of a table last.
    errors = error.errors(include_url=False)
    errors.sort(key=lambda found: line_of(_keys(found), source.text) or 0)
    if unknown := [item for found in errors if (item := _unknown(found, source))]:
        raise UnknownSettingsError(unknown)
    first = errors[0]
    keys, value = _keys(first), first["input"]
    dotted = ".".join(keys)
    declared, _ = find(keys, SETTINGS.values())
    if first["type"] == "missing" or declared is None:
        _refuse_missing(dotted, source)
    odd = ", which contains a NUL character" if isinstance(value, str) and "\0" in value else ""
    message = f"{source.name(dotted)} must be {declared.allowed}, not {shown(value)}{odd}"
    raise source.error(message, _hint(keys, declared, value, source))


def _keys(error: Mapping[str, Any]) -> tuple[str, ...]:
    # Positions in lists and the marker of a bad key are pydantic's; users know only keys.
    return tuple(str(part) for part in error["loc"] if not isinstance(part, int) and part != "[key]")


def _unknown(error: Mapping[str, Any], source: Source) -> UnknownKey | None:
    keys = _keys(error)
    declared, beside = find(keys, SETTINGS.values())
    if error["type"] != "extra_forbidden" and declared is not None:
        return None
    known = tuple(item.key for item in beside)
    return UnknownKey(where=source.place(keys), key=".".join(keys), known=known)


def _refuse_missing(dotted: str, source: Source) -> NoReturn:
    needs = {"prices": "a price needs input and output.", "repos": "a repository needs a path or a URL."}
    hint = needs.get(dotted.partition(".")[0], "an agent needs argv = [program, argument, …].")
    raise source.error(f"{source.name(dotted)} is missing", hint)


def _hint(keys: tuple[str, ...], declared: Declared, value: Any, source: Source) -> str:
    if SETTINGS[keys[0]].is_table:
        return "`autopilot-multi config` shows the values in use without it."
    nearest = did_you_mean(str(value), declared.choices)
    if nearest:
        return nearest
    key, example = declared.key, declared.sample
    match source.kind:
        case SourceKind.FLAG:
            return f"for example --{key} {repr(example) if ' ' in example else example}."
        case SourceKind.ENVIRONMENT:
            return f"for example {source.name(key)}={example!r}."
        case SourceKind.FILE:
            quoted = example if declared.is_number or declared.is_switch else f'"{example}"'
            equals = ": " if source.file.endswith(".md") else " = "
            return f"for example {key}{equals}{quoted}."

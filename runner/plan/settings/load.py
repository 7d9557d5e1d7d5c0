"""The settings of a run, from all their sources, each value with its origin.

The first source that has a key decides: flags, the environment (`AUTOPILOT_MULTI_MAX_STORIES` and so on),
`autopilot-multi.toml` or `.config/autopilot-multi.toml` at the top of the repository, the `autopilot:`
block in AGENTS.md or CLAUDE.md, the common keys of the Session Config there, the user's `config.toml`, the
defaults. Every source is checked, also where another one decides. Tables such as `agents` are joined entry
by entry; flags and the environment cannot set them.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from isolation.patterns import pattern
from runner.core.agent_settings import AgentSettings
from runner.core.declaration import ENVIRONMENT_PREFIX, declared_in, find, shown_value
from runner.core.errors import SettingsError
from runner.core.notices.notice import agreed_url
from runner.core.setting_groups.repo_settings import RepoSettings
from runner.core.settings import SETTINGS, Settings
from runner.core.text.names import did_you_mean
from runner.core.text.unknown_keys import UnknownKey
from runner.core.trust import Demand
from runner.plan.settings.agents_md import load_block, load_common_keys
from runner.plan.settings.files import exists, obstacle
from runner.plan.settings.values import Source, SourceKind, UnknownSettingsError, build, checked, clamped

PROJECT_FILES = ("autopilot-multi.toml", ".config/autopilot-multi.toml")
# Limited in length: reading a very long number takes quadratic time.
_INTEGER = pattern(r"[+-]?[0-9]{1,300}")
_DECIMAL = pattern(r"[+-]?(?:[0-9]{1,300}\.?[0-9]{0,300}|\.[0-9]{1,300})")


class Loaded(Struct, frozen=True, kw_only=True):
    """The settings, where each value came from, and notes for the user.

    `origins` has each key of the settings, and one dotted key for every entry of a table that was set, such
    as `hooks.before_run` or `tiers.warn.memory-gb`. `demands` is what files of the repository set that the
    user must agree to.
    """

    settings: Settings
    origins: Mapping[str, str]
    notes: tuple[str, ...]
    demands: tuple[Demand, ...] = ()


class _Layer(Struct, frozen=True, kw_only=True):
    """What one source holds, unchecked; `notes` are about what was ignored.

    `repository`: it is a file of the repository, so somebody else may have written it.
    """

    source: Source
    values: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    repository: bool = False


def load_settings(
    *, top: Path, flags: Mapping[str, str | tuple[str, ...]], environ: Mapping[str, str]
) -> Loaded:
    """Read and check every source, and join the values; a number out of bounds is clamped, with a note."""
    layers = [
        _flags(flags),
        _environment(environ),
        *(replace(layer, repository=True) for layer in (*_project(top), *_block(top), *_common_keys(top))),
        *_user(environ),
    ]
    joined: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, "default")
    notes: list[str] = []
    unknown: list[UnknownKey] = []
    demands: list[Demand] = []
    for layer in layers:
        notes.extend(layer.notes)
        try:
            given = checked(layer.values, layer.source)
        except UnknownSettingsError as error:
            unknown.extend(error.keys)
            continue
        for key, value in given.items():
            table = key.partition(".")[0]
            if layer.repository and SETTINGS[table].setting.own:
                notes.append(
                    f"{layer.source.name(key)} has no effect: only you can say that, not the repository"
                )
                continue
            if key in joined:
                continue
            if layer.repository and SETTINGS[table].setting.asks:
                demands.extend(_demands(key, value, layer.source))
            joined[key], note = clamped(key, value, layer.source)
            notes.extend([note] if note else [])
            origins[key] = layer.source.origin(key)
            # A table's own origin is that of the strongest source that sets any entry of it.
            if origins[table] == "default":
                origins[table] = origins[key]
    if unknown:
        raise UnknownSettingsError(unknown)
    return Loaded(
        settings=build(joined, origins), origins=origins, notes=tuple(notes), demands=tuple(demands)
    )


def _demands(key: str, value: Any, source: Source) -> Iterator[Demand]:
    """Return what a file of the repository asks for under one key; a default asks for nothing."""
    if isinstance(value, AgentSettings | RepoSettings):
        # One by one, so that a change of a variable is not hidden in a long line.
        for item in declared_in(type(value), type(value)()):
            inner = getattr(value, item.field)
            if isinstance(inner, Mapping):
                for name, text in inner.items():
                    yield _demand(f"{key}.{item.key}.{name}", text, source)
            elif inner != item.default:
                yield _demand(f"{key}.{item.key}", inner, source)
        return
    declared, _ = find(key.split("."), SETTINGS.values())
    if declared is None or value != declared.default:
        for entry in value if isinstance(value, tuple) else (value,):
            yield _demand(key, agreed_url(entry) if key == "notify-urls" else entry, source)


def _demand(key: str, value: object, source: Source) -> Demand:
    keys = tuple(key.split("."))
    # A key inside a table in one line has no line of its own.
    places = (source.place(keys[:end]) for end in range(len(keys), 0, -1))
    where = next((place for place in places if place != source.file), source.file)
    return Demand(what=key, value=_exact(value), where=where)


def _exact(value: object) -> str:
    """Write a value so that two different ones never look the same."""
    return shlex.join(value) if isinstance(value, tuple) else shown_value(value)


def _flags(flags: Mapping[str, str | tuple[str, ...]]) -> _Layer:
    values = {
        key: list(value) if isinstance(value, tuple) else _typed(key, value) for key, value in flags.items()
    }
    return _Layer(source=Source(kind=SourceKind.FLAG), values=values)


def _environment(environ: Mapping[str, str]) -> _Layer:
    source = Source(kind=SourceKind.ENVIRONMENT)
    names = {declared.variable: key for key, declared in SETTINGS.items() if not declared.is_table}
    values: dict[str, Any] = {}
    notes: list[str] = []
    for name, text in sorted(environ.items()):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        key = names.get(name)
        if key is None:
            notes.append(f"the environment variable {name} is unknown, {_ignored(name, names)}")
        elif text.strip():
            values[key] = _typed(key, text)
    return _Layer(source=source, values=values, notes=tuple(notes))


def _typed(key: str, text: str) -> Any:
    """Read a text as what its key takes; what cannot be read stays text and is refused later."""
    declared = SETTINGS[key]
    if declared.is_whole and _INTEGER.fullmatch(text.strip()):
        return int(text)
    if declared.is_number and not declared.is_whole and _DECIMAL.fullmatch(text.strip()):
        return float(text)
    if declared.is_list:
        separator = declared.setting.separator
        parts = text.splitlines() if separator == "\n" else text.split(separator)
        return [part.strip() for part in parts if part.strip()]
    return text


def _project(top: Path) -> list[_Layer]:
    present = [name for name in PROJECT_FILES if _exists(top / name, name)]
    if len(present) > 1:
        raise SettingsError(
            f"two settings files exist: {present[0]} and {present[1]}", hint="keep one of them."
        )
    return [_file(top / name, name) for name in present]


def _block(top: Path) -> list[_Layer]:
    block, notes = load_block(top)
    if block is None:
        return [_Layer(source=Source(kind=SourceKind.FILE), values={}, notes=notes)]
    known = {key: value for key, value in block.values.items() if key in SETTINGS}
    unknown = tuple(
        f"{block.file}: the key '{key}' of the 'autopilot:' block is unknown here, {_ignored(key, SETTINGS)}"
        for key in block.values
        if key not in SETTINGS
    )
    return [
        _Layer(source=Source(kind=SourceKind.FILE, file=block.file), values=known, notes=(*notes, *unknown))
    ]


def _common_keys(top: Path) -> list[_Layer]:
    section, notes = load_common_keys(top)
    if section is None:
        return []
    return [
        _Layer(source=Source(kind=SourceKind.FILE, file=section.file), values=section.values, notes=notes)
    ]


def _ignored(name: str, known: Iterable[str]) -> str:
    nearest = did_you_mean(name, known)
    return f"and has no effect; {nearest}" if nearest else "and has no effect"


def _user(environ: Mapping[str, str]) -> list[_Layer]:
    home, folder = environ.get("HOME", ""), environ.get("XDG_CONFIG_HOME", "")
    if not folder.startswith("/"):  # the XDG specification says to ignore a relative one
        if not home:
            return []
        folder = f"{home}/.config"
    path = Path(folder) / "autopilot-multi" / "config.toml"
    inside = bool(home) and path.is_relative_to(home)
    name = f"~/{path.relative_to(home).as_posix()}" if inside else str(path)
    return [_file(path, name)] if _exists(path, name) else []


def _exists(path: Path, name: str) -> bool:
    """Return whether a settings file exists; anything else with its name is refused, not ignored."""
    try:
        if other := obstacle(path):
            raise SettingsError(
                f"{name} is {other}, not a settings file",
                hint="remove it, or replace it by a TOML file.",
            )
        return exists(path)
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> SettingsError:
    return SettingsError(
        f"cannot read {name}: {error.strerror or error}",
        hint="check its permissions, and those of the folders above it.",
    )


def _file(path: Path, name: str) -> _Layer:
    import tomllib

    try:
        text = path.read_text(encoding="utf-8-sig")
        values = tomllib.loads(text)
    except OSError as error:
        raise _unreadable(name, error) from error
    except (ValueError, RecursionError) as error:  # also bytes that are not text, and endless numbers
        raise SettingsError(f"{name}: not valid TOML: {error}", hint="strings need quotes.") from error
    return _Layer(source=Source(kind=SourceKind.FILE, file=name, text=text), values=values)

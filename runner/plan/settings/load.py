"""The settings of a run, from all places that may hold them, each value with its origin.

Precedence, the first that has a key decides: flags, the environment (`AUTOPILOT_MULTI_MAX_STORIES`
and so on), `autopilot-multi.toml` or `.config/autopilot-multi.toml` at the top of the repository,
the `autopilot:` block in AGENTS.md or CLAUDE.md, the user's `config.toml`, the defaults. Every
place is checked, also where another decides. The tables `agents`, `hooks` and `tiers` are joined
entry by entry; they cannot come from flags or the environment.

In the environment the variables of `verify`, `deconflict-paths` and `shared-writable` hold one entry a line,
and that of `symlink-directories` names separated by commas; an empty variable counts as absent.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from runner.core.declaration import ENVIRONMENT_PREFIX
from runner.core.errors import SettingsError
from runner.core.settings import SETTINGS, Settings
from runner.core.text.names import did_you_mean
from runner.plan.settings.agents_md import load_block
from runner.plan.settings.files import is_there, obstacle
from runner.plan.settings.values import Source, SourceKind, build, checked, clamped

PROJECT_FILES = ("autopilot-multi.toml", ".config/autopilot-multi.toml")
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,300}\.?[0-9]{0,300}|\.[0-9]{1,300})")


class Loaded(Struct, frozen=True, kw_only=True):
    """The settings; for every key where its value came from; what the person should be told.

    `origins` has each key of the settings, and besides one dotted key for every entry of a table
    that was set, such as `hooks.before_run` or `tiers.warn.memory-gb`.
    """

    settings: Settings
    origins: Mapping[str, str]
    notes: tuple[str, ...]


class _Layer(Struct, frozen=True, kw_only=True):
    """What one place holds, unchecked; `notes` are about what was left out."""

    source: Source
    values: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def load_settings(
    *, top: Path, flags: Mapping[str, str | tuple[str, ...]], environ: Mapping[str, str]
) -> Loaded:
    """Read every place, check it, and join the values; out of range clamps and adds a note."""
    layers = [_flags(flags), _environment(environ), *_project(top), *_block(top), *_user(environ)]
    joined: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, "default")
    notes: list[str] = []
    for layer in layers:
        notes.extend(layer.notes)
        for key, value in checked(layer.values, layer.source).items():
            if key in joined:
                continue
            joined[key], note = clamped(key, value, layer.source)
            notes.extend([note] if note else [])
            origins[key] = layer.source.origin(key)
            table = key.partition(".")[0]
            if origins[table] == "default":
                origins[table] = origins[key]
    return Loaded(settings=build(joined, origins), origins=origins, notes=tuple(notes))


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
    present = [name for name in PROJECT_FILES if _stands(top / name, name)]
    if len(present) > 1:
        raise SettingsError(
            f"there are two settings files: {present[0]} and {present[1]}", hint="keep one of them."
        )
    return [_file(top / name, name) for name in present]


def _block(top: Path) -> list[_Layer]:
    block, notes = load_block(top)
    if block is None:
        return [_Layer(source=Source(kind=SourceKind.FILE), values={}, notes=notes)]
    known = {key: value for key, value in block.values.items() if key in SETTINGS}
    strange = tuple(
        f"{block.file}: the key '{key}' of the 'autopilot:' block is unknown here, {_ignored(key, SETTINGS)}"
        for key in block.values
        if key not in SETTINGS
    )
    return [
        _Layer(source=Source(kind=SourceKind.FILE, file=block.file), values=known, notes=(*notes, *strange))
    ]


def _ignored(name: str, known: Iterable[str]) -> str:
    nearest = did_you_mean(name, known)
    return f"and has no effect; {nearest}" if nearest else "and has no effect"


def _user(environ: Mapping[str, str]) -> list[_Layer]:
    home, folder = environ.get("HOME", ""), environ.get("XDG_CONFIG_HOME", "")
    if not folder.startswith("/"):  # the specification says to ignore a relative one
        if not home:
            return []
        folder = f"{home}/.config"
    path = Path(folder) / "autopilot-multi" / "config.toml"
    inside = bool(home) and path.is_relative_to(home)
    name = f"~/{path.relative_to(home).as_posix()}" if inside else str(path)
    return [_file(path, name)] if _stands(path, name) else []


def _stands(path: Path, name: str) -> bool:
    """Tell whether a settings file is there; what only has its name must not pass for no settings."""
    try:
        if other := obstacle(path):
            raise SettingsError(
                f"{name} is {other}, not a settings file",
                hint="remove it, or move it away; or put a TOML file in its place.",
            )
        return is_there(path)
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> SettingsError:
    return SettingsError(
        f"{name} cannot be read: {error.strerror or error}",
        hint="check its permissions, and those of the folders above it.",
    )


def _file(path: Path, name: str) -> _Layer:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise _unreadable(name, error) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{name}: not valid TOML: {error}", hint="strings need quotes.") from error
    return _Layer(source=Source(kind=SourceKind.FILE, file=name), values=values)

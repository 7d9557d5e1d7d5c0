"""The settings as rows for people: key, value and where it came from; a table has one row per entry."""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from runner.core.notices.notice import hidden_url
from runner.core.settings import SETTINGS, Settings
from runner.plan.settings.load import Loaded

Row = tuple[str, Any, str]
"""Key, value and origin of a setting."""


def rows_of(loaded: Loaded) -> Iterator[Row]:
    """Yield key, value and origin of each setting; a table yields one row per entry.

    Of the URLs of notifications only the service is shown, since they hold secrets.
    """
    for path, value in values_of(loaded.settings):
        visible = tuple(map(hidden_url, value)) if path == "notify-urls" else value
        yield path, visible, _origin(loaded, path)


def values_of(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield key and value of each setting."""
    for name, value in asdict(settings).items():
        yield from _leaves(name.rstrip("_").replace("_", "-"), value)


def shown(key: str, value: Any, *, empty: str = '""') -> str:
    """Return a value as people write it."""
    if value is None:
        return SETTINGS[key].shown(None) if key in SETTINGS else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return value or empty
    return json.dumps(value, ensure_ascii=False)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Struct):
        value = asdict(value)
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            # In files only the names of thresholds have hyphens; the names of hooks and agents are free.
            spelled = name.replace("_", "-") if key.startswith(("tiers", "context")) else name
            yield from _leaves(f"{key}.{spelled}", inner)
    else:
        yield key, value


def _origin(loaded: Loaded, path: str) -> str:
    """Return the origin of a value, or of the nearest enclosing table that has one."""
    table = path.partition(".")[0]
    while path != table:
        if path in loaded.origins:
            return loaded.origins[path]
        path = path.rpartition(".")[0]
        if path == table:
            return "default"
    return loaded.origins[table]

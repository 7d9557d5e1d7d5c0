"""Show every setting, its value and where it came from.

The first source that sets a value wins: flags, AUTOPILOT_MULTI_* variables, autopilot-multi.toml, the
`autopilot:` block of AGENTS.md or CLAUDE.md, your own config.toml, the defaults.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.plan.settings.load import Loaded

EXAMPLE = "autopilot-multi config --json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `config`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Read the settings as a run would, and print them."""
    from isolation.paths import find_repository
    from runner.core.text.screen import neutral
    from runner.plan.settings.load import load_settings
    from runner.report.terminal.table import Cell, Column, layout, look_for

    top = find_repository(Path(arguments.directory)).top
    loaded = load_settings(top=top, flags={}, environ=os.environ)
    rows = list(_rows(loaded))
    settings = {key: {"value": value, "origin": origin} for key, value, origin in rows}
    output.document({"settings": settings, "notes": list(loaded.notes)})
    if not output.as_json:
        table = [
            [
                Cell(text=key),
                Cell(text=neutral(_shown(value)), color="dim" if origin == "default" else "bold"),
                Cell(text=neutral(origin), color="dim" if origin == "default" else ""),
            ]
            for key, value, origin in rows
        ]
        columns = [Column(title="SETTING"), Column(title="VALUE", limit=40), Column(title="FROM")]
        look = look_for(sys.stdout, no_color=arguments.no_color)
        output.answer("\n".join(layout(columns, table, look)))
    for note in loaded.notes:
        output.warn(note)
    return 0


def _rows(loaded: "Loaded") -> Iterator[tuple[str, Any, str]]:
    """Yield key, value and origin of each setting; a table yields one row per entry."""
    from dataclasses import asdict

    for name, value in asdict(loaded.settings).items():
        key = name.rstrip("_").replace("_", "-")
        for path, leaf in _leaves(key, value):
            yield path, leaf, _origin(loaded, path)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            # In files only the names of thresholds have hyphens; the names of hooks and agents are free.
            spelled = name.replace("_", "-") if key.startswith("tiers") else name
            yield from _leaves(f"{key}.{spelled}", inner)
    else:
        yield key, value


def _origin(loaded: "Loaded", path: str) -> str:
    """Return the origin of a value, or of the nearest enclosing table that has one."""
    table = path.partition(".")[0]
    while path != table:
        if path in loaded.origins:
            return loaded.origins[path]
        path = path.rpartition(".")[0]
        if path == table:
            return "default"
    return loaded.origins[table]


def _shown(value: Any) -> str:
    if value is None:
        return "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return value or '""'
    return json.dumps(value, ensure_ascii=False)

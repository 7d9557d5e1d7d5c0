"""Show settings, their values and where they came from: all of them, or those that you name.

The value of one setting is printed alone, for scripts.

The first source that sets a value wins: flags, AUTOPILOT_MULTI_* variables, autopilot-multi.toml, the
`autopilot:` block of AGENTS.md or CLAUDE.md, your own config.toml, the defaults.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.plan.setting_rows import Row

EXAMPLE = "autopilot-multi config --changed"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `config`."""
    parser.add_argument(
        "keys",
        nargs="*",
        metavar="KEY",
        help="a setting, such as max-stories, or a table, such as tiers.warn",
    )
    parser.add_argument("--changed", action="store_true", help="only what differs from its default")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Read the settings as a run would, and print them."""
    from isolation.paths import find_repository
    from runner.core.settings import Settings
    from runner.plan.setting_rows import rows_of, shown, values_of
    from runner.plan.settings.load import load_settings

    top = find_repository(Path(arguments.directory)).top
    loaded = load_settings(top=top, flags={}, environ=os.environ)
    rows = _chosen(list(rows_of(loaded)), arguments.keys)
    if arguments.changed:
        defaults = dict(values_of(Settings()))
        rows = [row for row in rows if row[0] not in defaults or row[1] != defaults[row[0]]]
    settings = {key: {"value": value, "origin": origin} for key, value, origin in rows}
    output.document({"settings": settings, "notes": list(loaded.notes)})
    if len(arguments.keys) == 1 and list(settings) == [_spelled(arguments.keys[0])]:
        output.answer(shown(rows[0][0], rows[0][1], empty=""))
    elif rows and not output.as_json:
        _print_table(rows, output, no_color=arguments.no_color)
    elif not rows:
        output.say("every setting has its default value")
    for note in loaded.notes:
        output.warn(note)
    return 0


def _print_table(rows: "list[Row]", output: Output, *, no_color: bool) -> None:
    from runner.core.text.screen import neutral
    from runner.plan.setting_rows import shown
    from runner.report.terminal.table import Cell, Column, layout, look_for

    table = [
        [
            Cell(text=key),
            Cell(text=neutral(shown(key, value)), color="dim" if origin == "default" else "bold"),
            Cell(text=neutral(origin), color="dim" if origin == "default" else ""),
        ]
        for key, value, origin in rows
    ]
    columns = [Column(title="SETTING"), Column(title="VALUE", limit=40), Column(title="FROM")]
    output.answer("\n".join(layout(columns, table, look_for(sys.stdout, no_color=no_color))))


def _chosen(rows: "list[Row]", keys: Sequence[str]) -> "list[Row]":
    """Return the rows of the named settings and tables, in the order of the names."""
    if not keys:
        return rows
    chosen = []
    for typed in keys:
        key = _spelled(typed)
        found = [row for row in rows if row[0] == key or row[0].startswith(f"{key}.")]
        if not found:
            from runner.core.errors import SettingsError
            from runner.core.text.names import did_you_mean

            nearest = did_you_mean(key, [row[0] for row in rows])
            hint = nearest or "`autopilot-multi config` lists all settings."
            raise SettingsError(f"unknown setting '{typed}'", hint=hint)
        chosen += [row for row in found if row not in chosen]
    return chosen


def _spelled(key: str) -> str:
    """Spell a key as settings are: a flag's dashes and a variable's underscores are understood, too."""
    first, dot, rest = key.lstrip("-").partition(".")
    return first.replace("_", "-") + dot + rest

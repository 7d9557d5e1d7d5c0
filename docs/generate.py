#!/usr/bin/env python3
"""The part of the documentation that the program itself writes, and the checks of the rest.

Without arguments it writes `reference/cli.md` from every command's own `--help`, and the tables of
`reference/settings.md` from the declarations of the settings. With `--check` it writes nothing and exits
with 1 when one of these pages is stale, or when a link leads nowhere.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.cli.overview import COMMANDS
from runner.cli.parser import Parser, common
from runner.core.agent_settings import AgentSettings, EventKeys, Price
from runner.core.declaration import Declared, declared_in, shown_value
from runner.core.setting_groups.repo_settings import RepoSettings
from runner.core.settings import SETTINGS, HookSettings
from runner.core.tier_settings import TierRow, TierSettings, TierThresholds
from runner.core.work_settings import ContextSettings

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
CLI_PAGE = DOCS / "reference" / "cli.md"
SETTINGS_PAGE = DOCS / "reference" / "settings.md"
ENVIRONMENT = {"COLUMNS": "80", "NO_COLOR": "1", "PYTHON_COLORS": "0"}
HEAD = """# Command line

<!-- Written by docs/generate.py from the program's own help. Do not edit. -->

A command prints its answer to standard output, and its progress to standard error. The
[exit codes](exit-codes.md) and [the JSON document](status.schema.json) have pages of their own;
[settings](settings.md) explains what the numbers mean.
"""
COMMON = """They mean the same everywhere, and may come before or after the command.

With `--json`, standard output is exactly one document, also for an error: `schema`, `success`, `command`, and
either `data` or `error` (with `code`, `message` and `hint`). Progress still goes to standard error; `-q`
silences it. `-q` alone leaves the answer on standard output, warnings and errors on standard error. `demo`
prints the document of its run. The exit code does not depend on either flag.
"""
_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?[^)\n]*\)")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.*?)[ \t]*#*$", re.MULTILINE)
_TABLE = re.compile(r"(?<=^<!-- table: )([a-z-]+)( -->\n).*?(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL)
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def main() -> int:
    """Write the pages, or check everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if something is wrong"
    )
    if not parser.parse_args().check:
        CLI_PAGE.write_text(cli_page(), encoding="utf-8")
        SETTINGS_PAGE.write_text(settings_page(), encoding="utf-8")
        return 0
    problems = [*_stale(), *_links()]
    for problem in problems:
        sys.stderr.write(f"error: {problem}\n")
    return 1 if problems else 0


def cli_page() -> str:
    """Return the page of the command line: the overview, then each command."""
    sections = [
        f"## Flags of every command\n\n{COMMON}\n{_table(_common_flags())}",
        f"## Overview\n\n```text\n{_help()}```\n",
    ]
    sections += [f"## `{name}`\n\n```text\n{_help(name)}```\n" for name in COMMANDS]
    return "\n".join([HEAD, *sections])


def _common_flags() -> list[list[str]]:
    parser = Parser(add_help=False)
    common(parser)
    rows = [["flag", "value", "meaning"]]
    for action in parser._actions:  # noqa: SLF001  argparse offers no list
        names = ", ".join(f"`{name}`" for name in action.option_strings)
        rows.append([names, f"`{action.metavar}`" if action.metavar else "", action.help or ""])
    return rows


def _help(*command: str) -> str:
    done = subprocess.run(  # noqa: S603  the program itself
        [sys.executable, "-m", "runner", *command, "--help"],
        env={**os.environ, **ENVIRONMENT},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def settings_page() -> str:
    """Return the page of the settings, with each of its marked tables written from the declarations."""
    page = SETTINGS_PAGE.read_text(encoding="utf-8")
    return _TABLE.sub(lambda match: f"{match[1]}{match[2]}\n{_table(_TABLES[match[1]]())}\n", page)


def _table(rows: list[list[str]]) -> str:
    head, *rest = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *rest]
    return "".join("|" + "".join(f" {cell} |" if cell else " |" for cell in line) + "\n" for line in lines)


def _plain_settings() -> list[list[str]]:
    rows = [["key", "default", "bounds", "flag", "environment variable", "meaning"]]
    for declared in SETTINGS.values():
        if declared.is_table:
            continue
        separators = {"\n": ", one per line", ",": ", separated by commas"}
        rows.append(
            [
                f"`{declared.key}`",
                _default(declared),
                _bounds(declared),
                _flag(declared),
                f"`{declared.variable}`{separators.get(declared.setting.separator, '')}",
                _meaning(declared),
            ]
        )
    return rows


def _default(declared: Declared) -> str:
    value = declared.shown(declared.default)
    if declared.default is None:
        return value
    empty = f"empty: {declared.setting.empty}" if declared.setting.empty else "empty"
    return f"`{value}`" if value else empty


def _bounds(declared: Declared) -> str:
    choices = ", ".join(f"`{choice}`" for choice in declared.choices)
    return declared.range or choices or ("above 0" if declared.is_optional else "")


def _flag(declared: Declared) -> str:
    flag = f"`{declared.setting.flag}`" if declared.setting.flag else ""
    return f"{flag}, repeatable" if flag and declared.is_list else flag


def _meaning(declared: Declared) -> str:
    return f"{declared.heading}. {declared.setting.details}".strip()


def _agents() -> list[list[str]]:
    types = {
        "argv": "list of texts",
        "resume": "list of texts",
        "args": "list of texts",
        "env": "table of texts",
    }
    return [
        ["key", "type", "meaning"],
        *(
            [
                f"`agents.NAME.{item.key}`",
                types.get(item.key) or item.alternatives or "table",
                _meaning(item),
            ]
            for item in declared_in(AgentSettings)
        ),
    ]


def _events() -> list[list[str]]:
    rows = [[f"`{item.key}`", item.setting.help] for item in declared_in(EventKeys)]
    return [["key of `agents.NAME.events`", "what is found there"], *rows]


def _prices() -> list[list[str]]:
    rows = [
        [f"`prices.MODEL.{item.key}`", item.setting.help + ("; required" if item.setting.required else "")]
        for item in declared_in(Price)
    ]
    return [["key", "meaning"], *rows]


def _repos() -> list[list[str]]:
    rows = [
        [f"`repos.NAME.{item.key}`", item.setting.help + ("; required" if item.setting.required else "")]
        for item in declared_in(RepoSettings)
    ]
    return [["key", "meaning"], *rows]


def _hooks() -> list[list[str]]:
    rows = [
        [f"`hooks.{item.key}`", item.setting.help, item.setting.details] for item in declared_in(HookSettings)
    ]
    return [["key", "when", "when it fails"], *rows]


def _context() -> list[list[str]]:
    rows = [
        [f"`context.{item.key}`", shown_value(item.default), _meaning(item)]
        for item in declared_in(ContextSettings, ContextSettings())
    ]
    return [["key", "default", "meaning"], *rows]


def _thresholds() -> list[list[str]]:
    tiers = TierSettings()
    rows = [
        [
            f"`{item.key}`",
            *(f"{getattr(tier, item.field):g}" for tier in (tiers.green, tiers.warn, tiers.degraded)),
            item.setting.help,
        ]
        for item in declared_in(TierThresholds)
    ]
    return [["key", "green", "warn", "degraded", "signal"], *rows]


def _tier_limits() -> list[list[str]]:
    tiers = TierSettings()
    thresholds = {item.field for item in declared_in(TierThresholds)}
    rows = [
        [f"`tiers.{tier}.{item.key}`", shown_value(item.default), item.range, _meaning(item)]
        for tier, row in (("warn", tiers.warn), ("degraded", tiers.degraded))
        for item in declared_in(TierRow, row)
        if item.field not in thresholds
    ]
    return [["key", "default", "bounds", "meaning"], *rows]


_TABLES = {
    "settings": _plain_settings,
    "agents": _agents,
    "events": _events,
    "prices": _prices,
    "repos": _repos,
    "hooks": _hooks,
    "context": _context,
    "thresholds": _thresholds,
    "tier-limits": _tier_limits,
}


def _stale() -> Iterator[str]:
    # Line breaks are left out of the comparison: Python versions wrap the same help differently.
    for page, expected in ((CLI_PAGE, cli_page()), (SETTINGS_PAGE, settings_page())):
        written = page.read_text(encoding="utf-8").split() if page.exists() else []
        if written != expected.split():
            yield f"{page.relative_to(ROOT)} is stale; write it again: python docs/generate.py"
    page = SETTINGS_PAGE.read_text(encoding="utf-8")
    for name in _TABLES:
        if f"<!-- table: {name} -->" not in page:
            yield f"{SETTINGS_PAGE.relative_to(ROOT)} has no table '{name}'"


def _links() -> Iterator[str]:
    """Find relative links that lead to no file, or to no heading of it."""
    for page in _pages():
        for target in _LINK.findall(_prose(page)):
            if _ABSOLUTE.match(target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                yield f"{page.relative_to(ROOT)}: the link to {target} leads nowhere"
            elif anchor and file.suffix == ".md" and anchor not in _anchors(file):
                yield f"{page.relative_to(ROOT)}: the link to {target} names no heading"


def _pages() -> list[Path]:
    folders = (folder for folder in (DOCS, ROOT / "examples") if folder.is_dir())
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(page for folder in folders for page in folder.rglob("*.md")),
    ]


def _prose(page: Path) -> str:
    """Return a page without its code, in which brackets are not links."""
    return _CODE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))


def _anchors(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {_slug(heading) for heading in _HEADING.findall(text)}


def _slug(heading: str) -> str:
    """Name a heading as forges do."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The part of the documentation that the program itself writes, and the checks of the rest.

Without arguments it writes `reference/cli.md` from every command's own `--help`. With `--check` it
writes nothing and ends with 1 when that page is stale, when a setting is missing from
`reference/settings.md` or described there otherwise than it is, or when a link leads nowhere.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from runner.cli.overview import COMMANDS
from runner.core.settings import BOUNDS, HookSettings, Settings
from runner.core.tier_settings import TierThresholds

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
CLI_PAGE = DOCS / "reference" / "cli.md"
SETTINGS_PAGE = DOCS / "reference" / "settings.md"
ENVIRONMENT = {"COLUMNS": "80", "NO_COLOR": "1", "PYTHON_COLORS": "0"}
HEAD = """# Command line

<!-- Written by docs/generate.py from the program's own help. Do not edit. -->

What a command prints as its answer goes to standard output, what it tells on the way to standard
error. The [exit codes](exit-codes.md) and [the JSON document](status.schema.json) have pages of
their own; what the numbers mean stands in [settings](settings.md).
"""
_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?[^)\n]*\)")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.*?)[ \t]*#*$", re.MULTILINE)
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def main() -> int:
    """Write the page, or check everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if something is off")
    if not parser.parse_args().check:
        CLI_PAGE.write_text(cli_page(), encoding="utf-8")
        return 0
    problems = [*_stale(), *_settings(SETTINGS_PAGE.read_text(encoding="utf-8")), *_links()]
    for problem in problems:
        sys.stderr.write(f"error: {problem}\n")
    return 1 if problems else 0


def cli_page() -> str:
    """Give the page of the command line: the overview, then each command."""
    sections = [f"```text\n{_help()}```\n"]
    sections += [f"## `{name}`\n\n```text\n{_help(name)}```\n" for name in COMMANDS]
    return "\n".join([HEAD, *sections])


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


def _stale() -> Iterator[str]:
    # Line breaks are left out of the comparison: Python versions wrap the same help differently.
    written = CLI_PAGE.read_text(encoding="utf-8").split() if CLI_PAGE.exists() else []
    if written != cli_page().split():
        yield f"{CLI_PAGE.relative_to(ROOT)} is stale; write it again: python docs/generate.py"


def _settings(page: str) -> Iterator[str]:
    """Find settings without a row of their own, or whose row gives another default or other bounds."""
    where = SETTINGS_PAGE.relative_to(ROOT)
    rows = {
        match[1]: match[0] for match in re.finditer(r"^\| `([^`]+)` \|.*$", page, re.MULTILINE)
    }  # by the key in the first column
    for key, facts in _expected().items():
        row = rows.get(key)
        if row is None:
            yield f"{where} has no row for the setting `{key}`"
            continue
        for fact in facts:
            if fact not in row:
                yield f"{where}: the row of `{key}` does not say '{fact}'"


def _expected() -> dict[str, list[str]]:
    """Give every key with what its row must say."""
    default = Settings()
    expected: dict[str, list[str]] = {}
    for item in fields(Settings):
        key = item.name.rstrip("_").replace("_", "-")
        value = getattr(default, item.name)
        if item.name in {"hooks", "agents", "prices", "tiers"}:
            continue
        variable = f"`AUTOPILOT_MULTI_{key.upper().replace('-', '_')}`"
        expected[key] = [variable, *([f"`{_shown(value)}`"] if value or value == 0 else [])]
    for key, bounds in BOUNDS.items():
        expected.setdefault(key, []).append(f"{bounds.low:g} to {bounds.high:g}")
    expected.update({f"hooks.{item.name}": [] for item in fields(HookSettings)})
    expected.update(
        {f"agents.NAME.{name}": [] for name in ("argv", "resume", "args", "env", "permissions", "events")}
    )
    tiers = (default.tiers.green, default.tiers.warn, default.tiers.degraded)
    for item in fields(TierThresholds):
        key = item.name.replace("_", "-")
        expected[key] = ["| " + " | ".join(f"{getattr(tier, item.name):g}" for tier in tiers) + " |"]
    for tier, row in (("warn", default.tiers.warn), ("degraded", default.tiers.degraded)):
        expected.update(
            {f"tiers.{tier}.{cap}": [f"| {getattr(row, cap)} |"] for cap in ("stories", "agents")}
        )
    return expected


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, int | float) else str(value)


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
    """Give a page without its code, in which brackets are no links."""
    return _CODE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))


def _anchors(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {_slug(heading) for heading in _HEADING.findall(text)}


def _slug(heading: str) -> str:
    """Name a heading as forges do."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())

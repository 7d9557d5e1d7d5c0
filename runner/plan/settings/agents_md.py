"""The Session Config in AGENTS.md or CLAUDE.md: its `autopilot:` block, and two keys of all programs.

The block belongs to several programs: a line `autopilot:`, fenced or plain, followed by deeper indented
`key: value` lines. Under the heading `## Session Config` other programs keep their own keys, as plain lines
or as a list; two of them concern every program. The rest of the file is not ours, so a folder or a broken
link of that name only causes a note. A file that cannot be read is an error, since the block may hold
limits.
"""

import textwrap
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.errors import SettingsError
from runner.core.text.plain_yaml import plain_mapping
from runner.plan.settings.files import exists, obstacle

FILES = ("AGENTS.md", "CLAUDE.md")
_MAX_FILE = 4 * 1024 * 1024
_HEADER = pattern(r"([ \t]*)autopilot:[ \t]*(?:#.*)?")
_KEY = pattern(r"[ \t]*[\w-]+[ \t]*:(?:[ \t].*)?")
_SECTION = pattern(r"## Session Config[ \t]*")
_COMMON_LINE = pattern(r"(?:- )?(?:\*\*)?(agents-per-wave|persistence):(?:\*\*)?[ \t]+(.*)")
# `6 (deep: 18)` is 6, with another number for sessions of one type.
_COMMON_VALUES = {
    "agents-per-wave": pattern(r"(\d{1,9})\b(?:[ \t]*\(.*\))?"),
    "persistence": pattern(r"(true|false)"),
}


class Block(Struct, frozen=True, kw_only=True):
    """A block: in which file it is, and what it holds."""

    file: str
    values: dict[str, Any]


def load_block(top: Path) -> tuple[Block | None, tuple[str, ...]]:
    """Find the block that counts, with notes on ignored ones."""
    notes: list[str] = []
    found = [block for name in FILES if (block := _load(top, name, notes)) is not None]
    notes += [
        f"both {found[0].file} and {other.file} have an 'autopilot:' block; using {found[0].file}"
        for other in found[1:]
        if other.values != found[0].values
    ]
    return next(iter(found), None), tuple(notes)


def load_common_keys(top: Path) -> tuple[Block | None, tuple[str, ...]]:
    """Find the common keys in the section that counts, with notes on values that have no effect.

    A file that cannot be used is reported with the block.
    """
    for name in FILES:
        try:
            text, _ = _text(top / name)
        except OSError:
            continue
        given = _common_lines(text.splitlines())
        if not given:
            continue
        values: dict[str, Any] = {}
        notes = []
        for key, value in given.items():
            read = _COMMON_VALUES[key].fullmatch(value)
            if read is None:
                notes.append(f"{name}: '{key}: {value}' of the Session Config is unclear, and has no effect")
            else:
                values[key] = int(read[1]) if read[1].isdigit() else read[1] == "true"
        return Block(file=name, values=values), tuple(notes)
    return None, ()


def _common_lines(lines: list[str]) -> dict[str, str]:
    """Return the common keys in the section with their texts; the last line of a key counts."""
    inside, found = False, {}
    for line in lines:
        if line.startswith("## "):
            inside = _SECTION.fullmatch(line) is not None
        elif inside and (read := _COMMON_LINE.fullmatch(line)):
            found[read[1]] = _without_remark(read[2]).strip().strip("\"'")
    return found


def _without_remark(value: str) -> str:
    """Cut a value at the first `#` after a blank."""
    at = min((found for mark in (" #", "\t#") if (found := value.find(mark)) >= 0), default=len(value))
    return value[:at]


def _load(top: Path, name: str, notes: list[str]) -> Block | None:
    """Read one file's block; the reason why a file is ignored is added to `notes`."""
    try:
        text, why_not = _text(top / name)
    except OSError as error:
        raise SettingsError(
            f"cannot read {name}: {error.strerror or error}; it may have an 'autopilot:' block",
            hint="check its permissions.",
        ) from error
    if why_not:
        notes.append(f"{name} is {why_not}; no settings are read from it")
    located = _locate(text.splitlines())
    if located is None:
        return None
    first, lines = located
    values: Any = _values(textwrap.dedent("\n".join(lines).expandtabs(2)), name, first, len(lines))
    if not isinstance(values, dict):
        return None
    return Block(file=name, values={str(key): value for key, value in values.items()})


def _values(text: str, name: str, first: int, length: int) -> Any:
    """Read a block that begins at the line `first` of a file."""
    plain = plain_mapping(text)
    if plain is not None:
        return plain
    import yaml

    from runner.records.bounded_yaml import BAD_SCALARS, load_yaml

    try:
        return load_yaml(text)[0]
    except (yaml.YAMLError, *BAD_SCALARS) as error:
        mark = getattr(error, "problem_mark", None)
        line = first + (min(mark.line, length - 1) if mark else 0)  # the end of a block is its last line
        problem = getattr(error, "problem", None) or "unreadable"
        raise SettingsError(
            f"{name}:{line}: the 'autopilot:' block is not valid YAML: {problem}",
            hint="use indented lines such as 'max-stories: 3'.",
        ) from error


def _text(path: Path) -> tuple[str, str]:
    """Return the content of a file, or nothing and the reason."""
    if other := obstacle(path):
        return "", other
    if not exists(path):
        return "", ""
    if path.stat().st_size > _MAX_FILE:
        return "", f"larger than {_MAX_FILE // 1024 // 1024} MB"
    return path.read_text(encoding="utf-8-sig", errors="replace"), ""


def _locate(lines: list[str]) -> tuple[int, list[str]] | None:
    """Find the first block; return the number of its first line, and its lines."""
    for index, line in enumerate(lines):
        header = _HEADER.fullmatch(line)
        if header is None:
            continue
        # The word may also appear in prose: a block has a key in its first filled line.
        body = _indented(islice(lines, index + 1, None), deeper_than=len(header.group(1)))
        filled = [item for item in body if item.strip() and not item.lstrip().startswith("#")]
        if filled and _KEY.fullmatch(filled[0]):
            return index + 2, body
    return None


def _indented(lines: Iterable[str], *, deeper_than: int) -> list[str]:
    body: list[str] = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= deeper_than:
            break
        body.append(line)
    return body

"""From a file to raw entries: Markdown with front matter, and lists in YAML, TOML or JSON.

Only the form is checked here: that a file can be read, is text, is not too large, and has no key twice. Each
entry remembers where its keys are, so that an error about a value can name the line.
"""

import json
import re
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from msgspec import Struct

from runner.core.errors import BacklogError
from runner.records.bounded_yaml import BAD_SCALARS, load_yaml

LIST_SUFFIXES = frozenset({".yaml", ".yml", ".toml", ".json"})
MAX_FILE = 4 * 1024 * 1024
MAX_FRONT_MATTER = 64 * 1024

_FENCE = re.compile(r"---[ \t]*(?:\n|\Z)")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE)


class Position(NamedTuple):
    """Where a value is: the line, and how it is written there, as far as either is known."""

    line: int | None
    written: str | None


class Entry(Struct, frozen=True, kw_only=True):
    """One story as it is written in a file, before its values are checked.

    `body` is the text under the front matter; None in a list, where the key `prompt` holds it.
    """

    file: str
    source: str
    data: dict[str, Any]
    body: str | None
    stem: str | None
    node: yaml.Node | None
    first_line: int

    def position(self, keys: Sequence[str | int]) -> Position:
        """Find the value under these keys; without a line of its own it has that of its parent."""
        if self.node is None:
            return Position(None, None)
        line, node = self.node.start_mark.line, self.node
        for key in keys:
            if isinstance(node, yaml.MappingNode):
                pairs = [pair for pair in node.value if pair[0].value == key]
                if not pairs:
                    break
                line, node = pairs[-1][0].start_mark.line, pairs[-1][1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
                node = node.value[key]
                line = node.start_mark.line
        written = node.value if isinstance(node, yaml.ScalarNode) else None
        return Position(line + self.first_line, written)


def read_text(path: Path, file: str) -> str:
    """Read a story file as text with Unix line ends; `file` is its name in messages."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise BacklogError(f"{file} is not a regular file", hint="stories are Markdown files.")
        if info.st_size > MAX_FILE:
            raise BacklogError(
                f"{file} is {info.st_size / 1024 / 1024:.1f} MB large; a story file may be at most 4 MB",
                hint="let the prompt refer to big files of the repository instead of including them.",
            )
        data = path.read_bytes()
    except OSError as error:
        raise BacklogError(
            f"cannot read {file}: {error.strerror or error}", hint="check its path and its permissions."
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BacklogError(f"{file}:{line}: this is not UTF-8 text", hint="save it as UTF-8.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def has_front_matter(text: str) -> bool:
    """Return whether a Markdown text starts with front matter."""
    return _FENCE.match(text) is not None


def markdown_entry(path: Path, file: str, text: str) -> Entry:
    """Split a Markdown text into front matter and body; without front matter it is all body."""
    opening = _FENCE.match(text)
    if opening is None:
        return Entry(file=file, source=file, data={}, body=text, stem=path.stem, node=None, first_line=1)
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        raise BacklogError(
            f"{file}:1: the front matter is never closed",
            hint="end it with a line '---', or remove the '---' from line 1.",
        )
    header = text[opening.end() : closing.start()]
    if len(header) > MAX_FRONT_MATTER:
        raise BacklogError(
            f"{file}:1: the front matter is {len(header) // 1024} KB long; it may be at most 64 KB",
            hint="put the prompt under the closing '---'.",
        )
    data, node = _yaml(header, file, first_line=2)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise BacklogError(f"{file}:2: the front matter must be lines of 'key: value'", hint=_EXAMPLE)
    body = text[closing.end() :]
    return Entry(file=file, source=file, data=data, body=body, stem=path.stem, node=node, first_line=2)


def list_entries(path: Path, file: str, text: str, *, required: bool) -> list[Entry]:
    """Read the entries of a list file.

    A file without `stories` gives none unless it is `required`: a folder may hold other data.
    """
    node: yaml.Node | None = None
    if path.suffix.lower() == ".toml":
        data = _toml(text, file)
    elif path.suffix.lower() == ".json":
        data = _json(text, file)
    else:
        data, node = _yaml(text, file, first_line=1)
    if not isinstance(data, dict) or "stories" not in data:
        slips = [key for key in data if str(key).lower().startswith("stor")] if isinstance(data, dict) else []
        if required or slips:
            hint = f"write 'stories' instead of '{slips[0]}'." if slips else _LIST_EXAMPLE
            raise BacklogError(f"{file} has no list 'stories'", hint=hint)
        return []
    if others := [f"'{key}'" for key in data if key != "stories"]:
        raise BacklogError(
            f"{file}: unknown key{'s'[: len(others) > 1]} {', '.join(others)} beside 'stories'",
            hint=f"remove {', '.join(others)}; the settings have a file of their own, autopilot-multi.toml.",
        )
    stories = data["stories"]
    if not isinstance(stories, list):
        raise BacklogError(f"{file}: 'stories' must be a list", hint=_LIST_EXAMPLE)
    return [_list_entry(item, file, number, node) for number, item in enumerate(stories, start=1)]


_EXAMPLE = "for example 'title: Retry payments on timeout'."
_LIST_EXAMPLE = "a list file has a key 'stories' with entries of 'id' and 'prompt' (or 'command')."


def _list_entry(item: Any, file: str, number: int, root: yaml.Node | None) -> Entry:
    node = None
    if isinstance(root, yaml.MappingNode):
        # The last one counts: a merged list comes before the file's own.
        listed = [value for key, value in root.value if key.value == "stories"][-1]
        node = listed.value[number - 1] if isinstance(listed, yaml.SequenceNode) else None
    if not isinstance(item, dict):
        where = file if node is None else f"{file}:{node.start_mark.line + 1}"
        raise BacklogError(f"{where}: entry {number} of 'stories' is not a table", hint=_LIST_EXAMPLE)
    source = f"{file}#{number}"
    where = source if node is None else file
    return Entry(file=where, source=source, data=item, body=None, stem=None, node=node, first_line=1)


def _yaml(text: str, file: str, *, first_line: int) -> tuple[Any, yaml.Node | None]:
    try:
        return load_yaml(text, lambda node: _refuse_repeated_keys(node, file, first_line))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + first_line}" if mark else file
        raise BacklogError(f"{where}: not valid YAML: {error.problem}", hint=_QUOTES) from error
    except (yaml.YAMLError, *BAD_SCALARS) as error:
        reason = str(error).partition("\n")[0]
        raise BacklogError(f"{file}: not valid YAML: {reason}", hint=_QUOTES) from error


_QUOTES = "put values with ':', '#', '*' or quotes in double quotes."


def _refuse_repeated_keys(root: yaml.Node, file: str, first_line: int) -> None:
    """Raise for a key that is given twice, of which YAML itself would silently take the last."""
    pending, seen = [root], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + first_line
                if isinstance(key, yaml.ScalarNode) and lines.setdefault(key.value, line) != line:
                    raise BacklogError(
                        f"{file}:{line}: the key '{key.value}' was already given on line {lines[key.value]}",
                        hint="keep one of them.",
                    )
                pending.append(value)


def _toml(text: str, file: str) -> Any:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise BacklogError(f"{file}: not valid TOML: {error}", hint="strings need quotes.") from error


def _json(text: str, file: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BacklogError(
            f"{file}:{error.lineno}: not valid JSON: {error.msg}", hint="look for a missing comma or quote."
        ) from error
    except (ValueError, RecursionError) as error:
        raise BacklogError(f"{file}: not valid JSON: {error}", hint="simplify it.") from error

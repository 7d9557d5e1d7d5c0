"""From a file to raw entries: Markdown with front matter, and lists in YAML, TOML or JSON.

Only the form is checked here: that a file can be read, is text, is not too large, and has no key twice. Each
entry remembers where its keys are, so that an error about a value can name the line.
"""

import json
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.errors import BacklogError
from runner.core.text.names import shown
from runner.core.text.plain_yaml import plain_mapping

if TYPE_CHECKING:
    import yaml

LIST_SUFFIXES = frozenset({".yaml", ".yml", ".toml", ".json"})
MAX_FILE = 4 * 1024 * 1024
MAX_FRONT_MATTER = 64 * 1024

_FENCE = pattern(r"---[ \t]*(?:\n|\Z)")
_CLOSING = pattern(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE)


class Position(NamedTuple):
    """Where a value is: the line, and how it is written there, as far as either is known."""

    line: int | None
    written: str | None


class Entry(Struct, frozen=True, kw_only=True):
    """One story as it is written in a file, before its values are checked.

    `body` is the text under the front matter; None in a list, where the key `prompt` holds it. `plain` is
    front matter that was read without the YAML library, which is asked only where a value is.
    """

    file: str
    source: str
    data: dict[str, Any]
    body: str | None
    stem: str | None
    node: "yaml.Node | None"
    first_line: int
    plain: str = ""

    def position(self, keys: Sequence[str | int]) -> Position:
        """Find the value under these keys; without a line of its own it has that of its parent."""
        if self.node is None and not self.plain:
            return Position(None, None)
        from runner.plan.stories.yaml_text import place_of, read_yaml

        node = self.node or read_yaml(self.plain, self.file, first_line=self.first_line)[1]
        line, written = place_of(keys, node)
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
    plain = plain_mapping(header)
    data, node = (plain, None) if plain is not None else _yaml(header, file, first_line=2)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise BacklogError(f"{file}:2: the front matter must be lines of 'key: value'", hint=_EXAMPLE)
    return Entry(
        file=file,
        source=file,
        data=data,
        body=text[closing.end() :],
        stem=path.stem,
        node=node,
        first_line=2,
        plain=header if plain is not None else "",
    )


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
    if others := [f"'{key}'" for key in data if key not in {"stories", "repo"}]:
        raise BacklogError(
            f"{file}: unknown key{'s'[: len(others) > 1]} {', '.join(others)} beside 'stories'",
            hint=f"remove {', '.join(others)}; the settings have a file of their own, autopilot-multi.toml.",
        )
    stories = data["stories"]
    if not isinstance(stories, list):
        raise BacklogError(f"{file}: 'stories' must be a list", hint=_LIST_EXAMPLE)
    if (repo := data.get("repo")) is not None:
        if not isinstance(repo, str) or not repo.strip():
            raise BacklogError(
                f"{file}: 'repo' must be the path, the URL or the name of a repository, not {shown(repo)}",
                hint="it holds for every story of the list that has none of its own.",
            )
        stories = [{"repo": repo, **each} if isinstance(each, dict) else each for each in stories]
    return [_list_entry(item, file, number, node) for number, item in enumerate(stories, start=1)]


_EXAMPLE = "for example 'title: Retry payments on timeout'."
_LIST_EXAMPLE = "a list file has a key 'stories' with entries of 'id' and 'prompt' (or 'command')."


def _list_entry(item: Any, file: str, number: int, root: "yaml.Node | None") -> Entry:
    node = None
    if root is not None:
        from runner.plan.stories.yaml_text import story_node

        node = story_node(root, number)
    if not isinstance(item, dict):
        where = file if node is None else f"{file}:{node.start_mark.line + 1}"
        raise BacklogError(f"{where}: entry {number} of 'stories' is not a table", hint=_LIST_EXAMPLE)
    source = f"{file}#{number}"
    where = source if node is None else file
    return Entry(file=where, source=source, data=item, body=None, stem=None, node=node, first_line=1)


def _yaml(text: str, file: str, *, first_line: int) -> "tuple[Any, yaml.Node | None]":
    from runner.plan.stories.yaml_text import read_yaml

    return read_yaml(text, file, first_line=first_line)


def _toml(text: str, file: str) -> Any:
    import tomllib

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

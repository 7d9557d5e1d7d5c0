"""A tool call as one line: which tool, and the one argument that says what it does."""

import json
from collections.abc import Mapping
from typing import Any

from runner.core.conversation.entry import MOST_DETAIL, Entry, Kind

_TELLING = (
    *("command", "cmd", "file_path", "filePath", "absolute_path", "notebook_path", "path", "file", "pattern"),
    *("query", "url", "description", "subject", "prompt", "title", "skill", "name"),
)
_LONGEST = 300
_MOST_DIGITS = 15


def tool(name: str, arguments: Any, *, nested: bool = False) -> Entry:
    """Return a tool call; an argument of several lines is folded after its first."""
    words = telling_argument(arguments)
    lines = [line for line in words.strip().split("\n") if line.strip()]
    first = " ".join(lines[0].split()) if lines else ""
    shown = first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…"
    folded = len(lines) > 1 or shown != first
    return Entry(
        kind=Kind.TOOL,
        text=f"{name or 'tool'}: {shown}" if shown else name or "tool",
        detail=words[:MOST_DETAIL].strip() if folded else "",
        more=max(len(lines) - 1, 0),
        nested=nested,
    )


def telling_argument(arguments: Any) -> str:
    """Return the argument that says what a tool does, else all that are short; empty if there are none."""
    if isinstance(arguments, str):
        return arguments
    if not isinstance(arguments, Mapping):
        return ""
    for key in _TELLING:
        value = arguments.get(key)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if isinstance(value, str) and value.strip():
            return value
    return ", ".join(f"{key}={_short(value)}" for key, value in list(arguments.items())[:5] if _short(value))


def _short(value: Any) -> str:
    """Return a value of an argument that fits into a line; empty for any other."""
    if isinstance(value, bool | int | float):
        # A number may have more digits than Python converts.
        return json.dumps(value) if not isinstance(value, int) or abs(value) < 10**_MOST_DIGITS else ""
    return " ".join(value.split()) if isinstance(value, str) and len(value) <= _LONGEST else ""

"""One line of untrusted JSON: no line and no missing or mistyped key raises an error."""

import json
from typing import Any

from isolation.patterns import pattern
from runner.core.text.amounts import amount, whole_amount

_SHOWN = 200
_HALF = pattern(rb"\\u[dD][89a-fA-F]")
"""An escape that may be half a character: JSON allows it, and no file, hash or process can have it."""


def load(line: bytes) -> dict[str, Any] | None:
    """Read a line that holds one JSON object; None for anything else.

    What is no text in it, such as half a character, becomes `?` or a replacement character.
    """
    # A cheap test first: agents also print plain text, and some of them a lot.
    if not line.startswith(b"{"):
        return None
    try:
        found = json.loads(line.decode(errors="replace"))
        if _HALF.search(line):
            found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def at(found: Any, *keys: str) -> Any:
    """Follow keys into objects; None where one is missing."""
    for key in keys:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found


def text(found: Any, *keys: str) -> str:
    """Return the text under these keys, or an empty one."""
    value = at(found, *keys)
    return value if isinstance(value, str) else ""


def whole(found: Any, *keys: str) -> int | None:
    """Return the count under these keys, if it is one."""
    return whole_amount(at(found, *keys))


def number(found: Any, *keys: str) -> float | None:
    """Return the amount under these keys, if it is one."""
    return amount(at(found, *keys))


def objects(found: Any, *keys: str) -> list[dict[str, Any]]:
    """Return the objects of the list under these keys."""
    value = at(found, *keys)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def last_line(words: str) -> str:
    """Return the last line that is not empty, cut to what a screen can show."""
    lines = words[-4096:].strip().splitlines()
    return lines[-1].strip()[:_SHOWN] if lines else ""


def tool_line(name: str, arguments: Any) -> str:
    """Return one line that says which tool is used, and on what."""
    for key in ("command", "cmd", "file_path", "filePath", "path", "pattern", "url", "description"):
        value = text(arguments, key)
        if value:
            return f"{name}: {' '.join(value[:_SHOWN].split())}"[:_SHOWN]
    return name[:_SHOWN]

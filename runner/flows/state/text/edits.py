"""Edits of a text as replaced spans, so that everything else stays byte for byte.

New lines are inserted after the visible end of an existing line and use the text's own line ending, so a
missing final newline stays missing, and CRLF stays CRLF.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """Characters `start` to `end` are replaced by `text`."""

    start: int
    end: int
    text: str


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap; those at the same offset keep their order."""
    parts, position = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*parts, text[position:]])


def newline_of(text: str) -> str:
    """Return the line ending that the text uses first."""
    end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def line_end(text: str, offset: int) -> int:
    """Return where the visible part of the line around `offset` ends, before its line ending."""
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    return end - 1 if end > offset and text[end - 1] == "\r" else end


def insert_after(text: str, offset: int, lines: Sequence[str]) -> Edit:
    """Insert lines after the line around `offset`."""
    end, newline = line_end(text, offset), newline_of(text)
    return Edit(end, end, "".join(newline + line for line in lines))


def remove_line(text: str, start: int) -> Edit:
    """Remove the line that begins at `start`, including its ending."""
    end = text.find("\n", start)
    return Edit(start, len(text) if end < 0 else end + 1, "")

"""Changes to a text as replaced spans, so that all that is not named stays byte for byte.

New lines are put behind the visible end of an existing line and use the text's own line ending; so a
missing final newline stays missing, and CRLF stays CRLF.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """Characters `start` to `end` give way to `text`."""

    start: int
    end: int
    text: str


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Carry out edits that do not overlap; those at one place keep their order."""
    parts, position = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*parts, text[position:]])


def newline_of(text: str) -> str:
    """Give the line ending that the text uses first."""
    end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def line_end(text: str, offset: int) -> int:
    """Give where the visible part of the line around `offset` ends, before its line ending."""
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    return end - 1 if end > offset and text[end - 1] == "\r" else end


def insert_after(text: str, offset: int, lines: Sequence[str]) -> Edit:
    """Put lines behind the line around `offset`."""
    end, newline = line_end(text, offset), newline_of(text)
    return Edit(end, end, "".join(newline + line for line in lines))


def remove_line(text: str, start: int) -> Edit:
    """Take away the line that begins at `start`, its ending included."""
    end = text.find("\n", start)
    return Edit(start, len(text) if end < 0 else end + 1, "")

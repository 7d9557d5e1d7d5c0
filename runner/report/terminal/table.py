"""Aligned columns and colors without a terminal library, so that `status` starts fast.

Plain output has no colors and truncates nothing; on a terminal no line is wider than the terminal,
except for a path.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import TextIO

from msgspec import Struct

from runner.core.text.screen import fit, widest, wrap

_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}
_GAP = "  "
_NARROWEST = 40


class Look(Struct, frozen=True, kw_only=True):
    """How output may look: its width in cells (None: unlimited), its colors and its status marks."""

    width: int | None = None
    color: bool = False
    marks: bool = False

    def paint(self, text: str, color: str) -> str:
        """Color text that has no control characters, if colors are enabled."""
        if not (self.color and color and text):
            return text
        return f"\x1b[{_SGR[color]}m{text}\x1b[0m"

    def wrapped(self, text: str, indent: int = 0, color: str = "") -> list[str]:
        """Wrap text into colored lines that fit; a path stays in one piece so that it can be copied."""
        space = " " * indent
        if self.width is None:
            return [space + self.paint(text, color)]
        lines = wrap(text, max(_NARROWEST, self.width) - indent)
        return [space + self.paint(line, color) for line in lines]


PLAIN = Look()


def look_for(stream: TextIO, *, no_color: bool = False, environ: Mapping[str, str] = os.environ) -> Look:
    """Return how output to `stream` may look."""
    if not stream.isatty():
        return PLAIN
    plain = no_color or environ.get("NO_COLOR") or environ.get("TERM") == "dumb"
    return Look(width=shutil.get_terminal_size().columns, color=not plain, marks=True)


class Column(Struct, frozen=True, kw_only=True):
    """One column; on a terminal no cell is wider than `limit`."""

    title: str = ""
    right: bool = False
    limit: int | None = None


class Cell(Struct, frozen=True, kw_only=True):
    """Text without control characters, and its color."""

    text: str
    color: str = ""


def layout(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], look: Look) -> list[str]:
    """Align rows under their columns; the first line holds the titles. The last column takes the rest."""
    titles = [Cell(text=column.title, color="dim") for column in columns]
    table = [titles, *rows]
    widths = []
    for number, column in enumerate(columns):
        wanted = widest([row[number].text for row in table])
        limited = look.width is not None and column.limit is not None
        widths.append(min(wanted, column.limit or 0) if limited else wanted)
    if look.width is not None:
        taken = sum(widths[:-1]) + len(_GAP) * (len(columns) - 1)
        widths[-1] = max(0, min(widths[-1], look.width - taken))
    texts = [fit([row[number].text for row in table], width) for number, width in enumerate(widths)]
    return [
        _line(columns, row, [column[number] for column in texts], look) for number, row in enumerate(table)
    ]


def _line(
    columns: Sequence[Column], row: Sequence[Cell], texts: Sequence[tuple[str, str]], look: Look
) -> str:
    parts = []
    for column, cell, (text, space) in zip(columns, row, texts, strict=True):
        painted = look.paint(text, cell.color)
        parts.append(space + painted if column.right else painted + space)
    return _GAP.join(parts).rstrip()

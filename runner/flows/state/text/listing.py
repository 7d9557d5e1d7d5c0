"""Bullets and tables of a section: read with their positions, and changed item by item.

Only lines of added or removed items are touched; everything between them, including header and alignment
rows, stays.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from isolation.patterns import pattern
from runner.flows.state.text.codec import decode_bullet, decode_row
from runner.flows.state.text.edits import Edit, insert_after, newline_of
from runner.flows.state.text.layout import Section, Span, visible

_Value = TypeVar("_Value", str, tuple[str, ...])

_ROW = pattern(r"^ {0,3}\|([^\n]*)", re.MULTILINE)
_BULLET = pattern(
    r"^[ \t]*[-*+][ \t]+([^\n]*(?:\n[ \t]+(?![-*+][ \t])[^\s][^\n]*)*)|^[ \t]*[-*+][ \t\r]*$", re.MULTILINE
)


RowKind = Literal["head", "filler", "value", "blank"]
"""What a line of a table is."""


class Item(Struct, Generic[_Value], frozen=True, gc=False):
    """One value and the lines it takes."""

    value: _Value
    lines: re.Match[str]

    @property
    def span(self) -> Span:
        """The lines, from the first one's start to the last one's visible end."""
        start = self.lines.start()
        return Span(start, start + len(self.lines[0].rstrip("\r")))


class Listing(Struct, Generic[_Value], frozen=True):
    """The items of a section, placeholder lines, and the line after which items are inserted."""

    items: list[Item[_Value]]
    fillers: list[Span]
    anchor: int
    headed: bool

    @property
    def values(self) -> list[_Value]:
        """The items' values."""
        return [item.value for item in self.items]


def _row_kind(cells: tuple[str, ...], first: str, *, headed: bool) -> RowKind:
    """Return what a table's line is; `headed`: a header or a row came before."""
    lead = cells[0]
    if (lead.lower() == first and not headed) or (lead and not "".join(cells).strip("-: =")):
        return "head"
    rest = set(cells)
    if rest == {""}:
        return "blank"
    return "filler" if rest <= {"...", "…", ""} else "value"


def _sorted_rows(lines: Iterable[str], first: str) -> Iterator[tuple[tuple[str, ...], RowKind]]:
    """Yield the cells of a table's lines, and what each line is."""
    headed = False
    for line in lines:
        cells = decode_row(line)
        # Steps and attempts are numbers, so most rows need no closer look.
        kind = "value" if cells[0][:1].isdigit() else _row_kind(cells, first, headed=headed)
        headed = headed or kind in {"head", "value"}
        yield cells, kind


def _lines(form: re.Pattern[str], text: str, section: Section, hidden: tuple[Span, ...]) -> list[str]:
    """Return what the lines of a section hold, without their positions: reading needs none of these."""
    if not hidden:
        return form.findall(text, section.line_end, section.end)
    spans = visible(section.body, hidden)
    return [line for span in spans for line in form.findall(text, span.start, span.end)]


def _positions(
    form: re.Pattern[str], text: str, section: Section, hidden: tuple[Span, ...]
) -> list[re.Match[str]]:
    spans = visible(section.body, hidden)
    return [found for span in spans for found in form.finditer(text, span.start, span.end)]


def table_rows(text: str, section: Section, hidden: tuple[Span, ...], first: str) -> list[tuple[str, ...]]:
    """Return the rows of a table; `first` is the title of its first column."""
    lines = _lines(_ROW, text, section, hidden)
    return [cells for cells, kind in _sorted_rows(lines, first) if kind == "value"]


def read_table(text: str, section: Section, hidden: tuple[Span, ...], first: str) -> Listing[tuple[str, ...]]:
    """Read a table's rows with their positions."""
    items: list[Item[tuple[str, ...]]] = []
    fillers: list[Span] = []
    anchor, headed = section.start, False
    lines = _positions(_ROW, text, section, hidden)
    kinds = _sorted_rows((found[1] for found in lines), first)
    for found, (cells, kind) in zip(lines, kinds, strict=True):
        if kind == "value":
            items.append(Item(cells, found))
        elif kind == "head":
            anchor, headed = found.start(), True
        elif kind == "filler":
            fillers.append(Item(cells, found).span)
    return Listing(items, fillers, anchor, headed)


def bullets(text: str, section: Section, hidden: tuple[Span, ...]) -> list[str]:
    """Return a list's bullets; one that says `none` or holds the template's placeholder is not an item."""
    values = map(decode_bullet, _lines(_BULLET, text, section, hidden))
    return [value for value in values if value is not None]


def read_bullets(text: str, section: Section, hidden: tuple[Span, ...]) -> Listing[str]:
    """Read a list's bullets with their positions."""
    items: list[Item[str]] = []
    fillers: list[Span] = []
    for found in _positions(_BULLET, text, section, hidden):
        value = decode_bullet(found[1] or "")
        if value is None:
            fillers.append(Item("", found).span)
        else:
            items.append(Item(value, found))
    return Listing(items, fillers, section.start, True)


def change(
    text: str, listing: Listing[_Value], new: Sequence[_Value], lines: Sequence[str], *, empty: str
) -> list[Edit]:
    """Change the items to `new`, written as `lines`; `empty` is the line of a list without items."""
    if not listing.items:
        return _fill(text, listing, lines)
    spans: list[Span] = [item.span for item in listing.items]
    if not new and empty:
        return [_replaced(spans[0], [empty], text), *_removed(text, spans[1:])]
    edits: list[Edit] = []
    changes = SequenceMatcher(None, listing.values, list(new), autojunk=False)
    for tag, i1, i2, j1, j2 in changes.get_opcodes():
        if tag == "replace":
            edits.append(_replaced(spans[i1], lines[j1:j2], text))
            edits += _removed(text, spans[i1 + 1 : i2])
        elif tag == "delete":
            edits += _removed(text, spans[i1:i2])
        elif tag == "insert":
            edits.append(_inserted(text, listing, i1, lines[j1:j2]))
    return edits


def _fill(text: str, listing: Listing[_Value], lines: Sequence[str]) -> list[Edit]:
    if not listing.fillers:
        return [insert_after(text, listing.anchor, lines)]
    return [_replaced(listing.fillers[0], lines, text), *_removed(text, listing.fillers[1:])]


def _inserted(text: str, listing: Listing[_Value], at: int, lines: Sequence[str]) -> Edit:
    if at:
        end = listing.items[at - 1].span.end
        return insert_after(text, text.rfind("\n", 0, end) + 1, lines)
    start, newline = listing.items[0].span.start, newline_of(text)
    return Edit(start, start, "".join(line + newline for line in lines))


def _replaced(span: Span, lines: Sequence[str], text: str) -> Edit:
    return Edit(span.start, span.end, newline_of(text).join(lines))


def _removed(text: str, spans: Sequence[Span]) -> list[Edit]:
    edits = []
    for span in spans:
        end = text.find("\n", span.end)
        edits.append(Edit(span.start, len(text) if end < 0 else end + 1, ""))
    return edits

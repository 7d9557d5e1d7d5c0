"""Where things stand in a text: its headings, fenced blocks, and the region that holds the state.

Nothing is copied or normalised: everything is a span of the text as it is, so that an edit replaces
a span and leaves every other byte alone. A state may be a whole file or one fenced block in a larger
document; a section that stands outside of fences wins over those inside.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

CURRENT_STEP = "current step"

_MARK = re.compile(
    r"^\ufeff?(?: {0,3}(?:(?P<hashes>#{1,6})[ \t]+(?P<title>[^\n]*)|(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*))"
    r"|[ \t]*(?P<comment><!--))",
    re.MULTILINE,
)
_KEY = re.compile(r"^\ufeff?([ \t]*)([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:[ \t]*([^\n]*)", re.MULTILINE)


class Span(NamedTuple):
    """Characters `start` to `end` of a text."""

    start: int
    end: int


class Heading(NamedTuple):
    """A heading: its title in lower case, where its line starts and ends, and its depth."""

    title: str
    start: int
    end: int
    level: int


class Fence(NamedTuple):
    """A fenced block: the whole, its inside, and the headings in there."""

    whole: Span
    inside: Span
    headings: tuple[Heading, ...]


class Outline(NamedTuple):
    """The marks of a text: headings outside of fences, the fences, and comments over several lines."""

    headings: tuple[Heading, ...]
    fences: tuple[Fence, ...]
    comments: tuple[Span, ...]


class Section(NamedTuple):
    """A heading's line and the body up to the next heading."""

    title: str
    start: int
    body: Span
    level: int


class Key(NamedTuple):
    """A `key: value` line. `start` and `end` delimit the raw value, `line` is the line's start."""

    name: str
    indent: int
    raw: str
    start: int
    end: int
    line: int


def outline(text: str) -> Outline:
    """Find the marks of a text in one pass."""
    headings: list[Heading] = []
    fences: list[Fence] = []
    comments: list[Span] = []
    inner: list[Heading] = []
    opening: re.Match[str] | None = None
    skip = 0
    for mark in _MARK.finditer(text):
        if mark.start() < skip:
            continue
        hashes, _, ticks, info, _ = mark.groups()
        if hashes:
            (headings if opening is None else inner).append(_heading(mark))
        elif ticks and opening is None:
            opening, inner = mark, []
        elif ticks and opening is not None:
            if ticks.startswith(opening["fence"]) and not info.strip(" \t\r"):
                fences.append(_fence(text, opening, mark.start(), mark.end(), inner))
                opening = None
        elif opening is None:
            closed = text.find("-->", mark.end())
            skip = len(text) if closed < 0 else closed + 3
            comments.append(Span(mark.start(), skip))
    if opening is not None:
        fences.append(_fence(text, opening, len(text), len(text), inner))
    return Outline(tuple(headings), tuple(fences), tuple(comments))


def _heading(mark: re.Match[str]) -> Heading:
    title = " ".join(mark["title"].strip(" \t\r#").lower().split())
    return Heading(title, mark.start(), mark.end(), len(mark["hashes"]))


def _fence(text: str, opening: re.Match[str], closing: int, end: int, inner: list[Heading]) -> Fence:
    inside = min(opening.end() + 1, closing, len(text))
    return Fence(Span(opening.start(), end), Span(inside, closing), tuple(inner))


def sections(headings: tuple[Heading, ...], end: int) -> list[Section]:
    """Give each heading with its body; the last one's reaches to `end`."""
    follow = [heading.start for heading in headings[1:]]
    return [
        Section(here.title, here.start, Span(here.end, after), here.level)
        for here, after in zip(headings, [*follow, end], strict=False)
    ]


def keys(text: str, span: Span) -> Iterator[Key]:
    """Give the key lines of a span."""
    for found in _KEY.finditer(text, span.start, span.end):
        indent, name, raw = found.groups()
        yield Key(name, len(indent.expandtabs(4)), raw, found.start(3), found.end(), found.start())


def visible(span: Span, hidden: tuple[Span, ...]) -> list[Span]:
    """Give the parts of a span that lie outside of the hidden ones."""
    parts, start = [], span.start
    for cover in hidden:
        if cover.end <= start or cover.start >= span.end:
            continue
        parts.append(Span(start, max(start, cover.start)))
        start = min(cover.end, span.end)
    parts.append(Span(start, span.end))
    return parts


def line_number(text: str, offset: int) -> int:
    """Give the number of the line that holds a character, counted from 1."""
    return text.count("\n", 0, offset) + 1

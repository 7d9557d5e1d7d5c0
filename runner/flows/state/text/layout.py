"""The layout of a text: its headings, fenced blocks, and the region that holds the state.

Nothing is copied or normalized: everything is a span of the original text, so that an edit replaces a span
and leaves every other byte alone. A state may be a whole file or one fenced block in a larger document; a
section outside of fences wins over those inside.
"""

import re
from functools import lru_cache

from msgspec import Struct

CURRENT_STEP = "current step"

# A pattern that begins with a line break, not with `^`, lets the search skip from line to line; the
# characters that a mark may begin with let it skip most lines at once.
_MARK = re.compile(
    r"\n(?=[ \t#`~<\ufeff])\ufeff?(?: {0,3}(?:(#{1,6})[ \t]+([^\n]*)|(`{3,}|~{3,})([^\n]*))|[ \t]*<!--)",
)
_KEY = re.compile(r"^\ufeff?([ \t]*)([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:[ \t]*([^\n]*)", re.MULTILINE)


class Span(Struct, frozen=True, order=True):
    """Characters `start` to `end` of a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """Return these characters."""
        return text[self.start : self.end]


class Heading(Struct, frozen=True):
    """A heading: its title in lower case, where its line starts and ends, and its depth."""

    title: str
    start: int
    end: int
    level: int


class Fence(Struct, frozen=True):
    """A fenced block: all of it, its inside, and the headings inside."""

    whole: Span
    inside: Span
    headings: tuple[Heading, ...]


class Outline(Struct, frozen=True):
    """The marks of a text: headings outside of fences, the fences, and HTML comments."""

    headings: tuple[Heading, ...]
    fences: tuple[Fence, ...]
    comments: tuple[Span, ...]


class Section(Struct, frozen=True):
    """A heading's line and the body up to the next heading."""

    title: str
    start: int
    body: Span
    level: int


class Key(Struct, frozen=True):
    """A `key: value` line. Offsets are computed on demand: reading a value does not need them."""

    name: str
    indent: int
    raw: str
    found: re.Match[str]

    @property
    def start(self) -> int:
        """Where the raw value starts."""
        return self.found.start(3)

    @property
    def line(self) -> int:
        """Where the line starts."""
        return self.found.start()


def outline(text: str) -> Outline:
    """Find the marks of a text in one pass."""
    headings: list[Heading] = []
    fences: list[Fence] = []
    comments: list[Span] = []
    inner: list[Heading] = []
    opened: tuple[str, Span] | None = None
    skip = 0
    # The extra line break in front makes the first line a match too: a mark then starts at the offset
    # of its line in `text`, and its end is one too high.
    for mark in _MARK.finditer("\n" + text):
        start, end = mark.start(), mark.end() - 1
        if start < skip:
            continue
        hashes, title, ticks, info = mark.groups()
        if hashes:
            heading = Heading(_normalized(title), start, end, len(hashes))
            (headings if opened is None else inner).append(heading)
        elif ticks and opened is None:
            opened, inner = (ticks, Span(start, end)), []
        elif ticks and opened is not None:
            if ticks.startswith(opened[0]) and not info.strip(" \t\r"):
                fences.append(_fence(text, opened[1], Span(start, end), inner))
                opened = None
        elif opened is None:
            closed = text.find("-->", end)
            skip = len(text) if closed < 0 else closed + 3
            comments.append(Span(start, skip))
    if opened is not None:
        fences.append(_fence(text, opened[1], Span(len(text), len(text)), inner))
    return Outline(tuple(headings), tuple(fences), tuple(comments))


@lru_cache(maxsize=256)
def _normalized(title: str) -> str:
    return " ".join(title.strip(" \t\r#").lower().split())


def _fence(text: str, opening: Span, closing: Span, inner: list[Heading]) -> Fence:
    inside = min(opening.end + 1, closing.start, len(text))
    return Fence(Span(opening.start, closing.end), Span(inside, closing.start), tuple(inner))


def sections(headings: tuple[Heading, ...], end: int) -> list[Section]:
    """Return each heading with its body; the last one's reaches to `end`."""
    found = []
    for heading in reversed(headings):
        found.append(Section(heading.title, heading.start, Span(heading.end, end), heading.level))
        end = heading.start
    found.reverse()
    return found


def keys(text: str, span: Span) -> list[Key]:
    """Return the key lines of a span."""
    found = []
    for line in _KEY.finditer(text, span.start, span.end):
        indent, name, raw = line.groups()
        found.append(Key(name, len(indent.expandtabs(4)) if indent else 0, raw, line))
    return found


def visible(span: Span, hidden: tuple[Span, ...]) -> list[Span]:
    """Return the parts of a span outside of the hidden ones."""
    parts, start = [], span.start
    for cover in hidden:
        if cover.end <= start or cover.start >= span.end:
            continue
        parts.append(Span(start, max(start, cover.start)))
        start = min(cover.end, span.end)
    parts.append(Span(start, span.end))
    return parts


def line_number(text: str, offset: int) -> int:
    """Return the number of the line that contains an offset, counted from 1."""
    return text.count("\n", 0, offset) + 1

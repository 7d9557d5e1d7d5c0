"""The layout of a text: its headings, fenced blocks, and the region that holds the state.

Nothing is copied or normalized: everything is a span of the original text, so that an edit replaces a span
and leaves every other byte alone. A state may be a whole file or one fenced block in a larger document; a
section outside of fences wins over those inside.
"""

import re
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from isolation.patterns import pattern

CURRENT_STEP = "current step"

# A pattern that begins with a line break, not with `^`, lets the search skip from line to line; the
# characters that a mark may begin with let it skip most lines at once.
_MARK = pattern(
    r"\n(?=[ \t#`~<\ufeff])\ufeff?(?: {0,3}(?:(#{1,6})[ \t]+([^\n]*)|(`{3,}|~{3,})([^\n]*))|[ \t]*<!--)",
)
_KEY = pattern(r"^\ufeff?([ \t]*)([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:[ \t]*([^\n]*)", re.MULTILINE)


# `gc=False`: what is made for every line holds no cycles, so the garbage collector need not track it.
class Span(Struct, frozen=True, order=True, gc=False):
    """Characters `start` to `end` of a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """Return these characters."""
        return text[self.start : self.end]


class Section(Struct, gc=False):
    """A heading and the text up to the next one: its title in lower case, and its depth.

    The body starts where the heading's line ends.
    """

    title: str
    start: int
    line_end: int
    end: int
    level: int

    @property
    def body(self) -> Span:
        """What follows the heading's line."""
        return Span(self.line_end, self.end)


class Fence(Struct, frozen=True):
    """A fenced block: all of it, its inside, and the sections inside."""

    whole: Span
    inside: Span
    sections: list[Section]


class Outline(Struct, frozen=True):
    """The marks of a text: sections outside of fences, the fences, and HTML comments."""

    sections: list[Section]
    fences: list[Fence]
    comments: list[Span]


class Key(Struct, frozen=True, gc=False):
    """A `key: value` line, by its number among those of a span.

    Its offsets are looked up on demand: reading a value does not need them.
    """

    name: str
    indent: int
    raw: str
    text: str
    span: Span
    number: int

    @property
    def start(self) -> int:
        """Where the raw value starts."""
        return self._found().start(3)

    @property
    def line(self) -> int:
        """Where the line starts."""
        return self._found().start()

    def _found(self) -> re.Match[str]:
        lines = _KEY.finditer(self.text, self.span.start, self.span.end)
        return next(islice(lines, self.number, None))


def outline(text: str) -> Outline:
    """Find the marks of a text in one pass."""
    outer: list[Section] = []
    fences: list[Fence] = []
    comments: list[Span] = []
    sections, whole = outer, len(text)
    opened: tuple[str, Span] | None = None
    skip = 0
    # The extra line break in front makes the first line a match too: a mark then starts at the offset
    # of its line in `text`, and its end is one too high.
    for mark in _MARK.finditer("\n" + text):
        start, end = mark.span()
        if start < skip:
            continue
        hashes, title, ticks, info = mark.groups()
        if hashes:
            if sections:
                sections[-1].end = start
            sections.append(Section(_normalized(title), start, end - 1, whole, len(hashes)))
        elif ticks and opened is None:
            opened, sections = (ticks, Span(start, end - 1)), []
        elif ticks and opened is not None:
            if ticks.startswith(opened[0]) and not info.strip(" \t\r"):
                fences.append(_fence(opened[1], Span(start, end - 1), sections))
                opened, sections = None, outer
        elif opened is None:
            closed = text.find("-->", end - 1)
            skip = whole if closed < 0 else closed + 3
            comments.append(Span(start, skip))
    if opened is not None:
        fences.append(_fence(opened[1], Span(whole, whole), sections))
    return Outline(outer, fences, comments)


@lru_cache(maxsize=256)
def _normalized(title: str) -> str:
    return " ".join(title.strip(" \t\r#").lower().split())


def _fence(opening: Span, closing: Span, sections: list[Section]) -> Fence:
    if sections:
        sections[-1].end = closing.start
    inside = min(opening.end + 1, closing.start)
    return Fence(Span(opening.start, closing.end), Span(inside, closing.start), sections)


def keys(text: str, span: Span) -> list[Key]:
    """Return the key lines of a span."""
    return [
        Key(name, len(indent.expandtabs(4)) if indent else 0, raw, text, span, number)
        for number, (indent, name, raw) in enumerate(_KEY.findall(text, span.start, span.end))
    ]


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

"""The Current Step block: finds it, reads its keys, and changes their values.

A text has one such block or no state at all: two are ambiguous and refused.
"""

from msgspec import Struct

from runner.flows.state.errors import UnreadableStateError
from runner.flows.state.model import Problem
from runner.flows.state.text.codec import Scalar, decode_text, decode_word
from runner.flows.state.text.edits import Edit, insert_after
from runner.flows.state.text.layout import (
    CURRENT_STEP,
    Fence,
    Key,
    Outline,
    Section,
    Span,
    keys,
    line_number,
    outline,
    visible,
)

ORDER = ("flow", "step", "name", "status", "sub_step", "retry_count", "cycle", "tracker", "story")
PARTS = ("phase", "name", "detail")
AUTODEV_TITLE = "autodev state"
TITLES = ("autopilot state", AUTODEV_TITLE)
_KNOWN = frozenset(ORDER)
WORDS = _KNOWN - {"name", "sub_step"}


class Location(Struct, frozen=True):
    """The location of the state: its region, its sections by title, and the spans of the block's lines."""

    region: Span
    sections: dict[str, Section]
    repeated: list[Section]
    hidden: tuple[Span, ...]
    block: tuple[Span, ...]
    autodev_title: bool


class Block(Struct, frozen=True):
    """The keys of the block. `nested` are the lines below `sub_step`, `repeated` keys given again.

    `start` is the offset where the block starts.
    """

    start: int
    indent: int
    top: dict[str, Key]
    nested: list[Key]
    repeated: list[Key]
    unknown: list[Key]

    def scalar(self, name: str) -> Scalar | None:
        """Decode a key's value; None when the key is missing."""
        key = self.top.get(name)
        if key is None:
            return None
        return decode_word(key.raw) if name in WORDS else decode_text(key.raw)


def find_location(text: str) -> Location:
    """Find the one region that holds a state, or raise with the reason."""
    marks = outline(text)
    known, repeated = _by_title(marks.sections)
    if CURRENT_STEP in known:
        for section in repeated:
            if section.title == CURRENT_STEP:
                raise _ambiguous(text, section.start, "a second `## Current Step`")
        return _sectioned(text, known, repeated, Span(0, len(text)), _hidden(marks))
    fenced = [fence for fence in marks.fences if any(inner.title == CURRENT_STEP for inner in fence.sections)]
    if len(fenced) > 1:
        raise _ambiguous(text, fenced[1].whole.start, "a second fenced block with `## Current Step`")
    if fenced:
        return _sectioned(text, *_by_title(fenced[0].sections), fenced[0].inside, ())
    return _headless(text, marks)


def _hidden(marks: Outline) -> tuple[Span, ...]:
    if not marks.fences and not marks.comments:
        return ()
    return tuple(sorted([*(fence.whole for fence in marks.fences), *marks.comments]))


def _by_title(found: list[Section]) -> tuple[dict[str, Section], list[Section]]:
    """Return the first section of each title, and the others."""
    known: dict[str, Section] = {}
    return known, [section for section in found if known.setdefault(section.title, section) is not section]


def _sectioned(
    text: str,
    known: dict[str, Section],
    repeated: list[Section],
    region: Span,
    hidden: tuple[Span, ...],
) -> Location:
    current = known[CURRENT_STEP]
    block = tuple(visible(current.body, hidden)) if hidden else (current.body,)
    if hidden and not _is_block(text, block):
        # Some users fence the keys below the heading; only then are fenced lines the block.
        block = (current.body,)
    return Location(region, known, repeated, hidden, block, AUTODEV_TITLE in known)


def _headless(text: str, marks: Outline) -> Location:
    """Find keys without a heading: at the top, below the title, or in exactly one fenced block."""
    whole = Span(0, len(text))
    first = marks.sections[0].start if marks.sections else len(text)
    titled = [item.body for item in marks.sections if item.title in TITLES]
    hidden = _hidden(marks)
    for span in (Span(0, first), *titled):
        block = tuple(visible(span, hidden))
        if _is_block(text, block):
            known = {item.title: item for item in reversed(marks.sections)}
            return Location(whole, known, [], hidden, block, AUTODEV_TITLE in known)
    fenced = [fence for fence in marks.fences if _is_block(text, (_preamble(fence),))]
    if len(fenced) > 1:
        raise _ambiguous(text, fenced[1].whole.start, "a second fenced block with `step:` and `status:`")
    if fenced:
        here = fenced[0]
        known = {item.title: item for item in reversed(here.sections)}
        autodev = AUTODEV_TITLE in known or any(item.title == AUTODEV_TITLE for item in marks.sections)
        return Location(here.inside, known, [], (), (_preamble(here),), autodev)
    raise UnreadableStateError(
        "no state was found",
        problems=[
            Problem(
                line=1,
                key="step",
                message="no `## Current Step` section with `step:` and `status:`",
                hint="write that section, or remove the file so that it is created again",
            )
        ],
    )


def _preamble(fence: Fence) -> Span:
    """Return a block's lines before its first section; a title may precede them."""
    below = [section.start for section in fence.sections if section.title not in TITLES]
    return Span(fence.inside.start, below[0] if below else fence.inside.end)


def _is_block(text: str, spans: tuple[Span, ...]) -> bool:
    names = {key.name for span in spans for key in keys(text, span)}
    return "step" in names and "status" in names


def _ambiguous(text: str, offset: int, what: str) -> UnreadableStateError:
    problem = Problem(
        line=line_number(text, offset),
        key="step",
        message=f"{what}: it is ambiguous which one counts",
        hint="keep the correct one and remove the other",
    )
    return UnreadableStateError("the file contains two states", problems=[problem])


def read_block(text: str, location: Location) -> Block:
    """Sort the block's key lines by what they are."""
    top: dict[str, Key] = {}
    nested: list[Key] = []
    repeated: list[Key] = []
    unknown: list[Key] = []
    base, below, loose = -1, False, False
    for span in location.block:
        for key in keys(text, span):
            name, indent = key.name, key.indent
            if base < 0:
                base = indent
            deeper = indent > base
            # Lines that lost their indent are still recognized as the sub-step's, and then refused.
            loose = below and not deeper and (name == "phase" or (loose and name in PARTS))
            if below and (deeper or loose):
                nested.append(key)
            elif deeper or name not in _KNOWN:
                unknown.append(key)
                below = below and deeper
            else:
                below = name == "sub_step"
                if top.setdefault(name, key) is not key:
                    repeated.append(key)
    return Block(location.block[0].start, max(base, 0), top, nested, repeated, unknown)


def set_value(text: str, key: Key, scalar: Scalar, encoded: str) -> Edit:
    """Replace a key's value; a remark after it stays."""
    lead = " " if encoded and text[key.start - 1] == ":" else ""
    return Edit(key.start, key.start + scalar.length, lead + encoded)


def add_key(text: str, block: Block, name: str, encoded: str) -> Edit:
    """Add a missing key after the ones that usually precede it."""
    index = ORDER.index(name)
    lines = [block.top[known].line for known in ORDER[:index] if known in block.top]
    if index > ORDER.index("sub_step"):
        lines += [key.line for key in block.nested]
    return insert_after(text, max(lines), [f"{' ' * block.indent}{name}: {encoded}"])

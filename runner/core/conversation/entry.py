"""What a session's log shows to people: a message, a tool call, a result, one value each.

Entries are small whatever a log holds: a text is cut where it is made, and what was cut is counted. They may
hold anything that an agent printed; `safe` makes one harmless for a terminal.
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from runner.core.text.screen import neutral

MOST_SHOWN = 6
"""How many lines of a result are shown before the rest is folded."""
MOST_FAILED = 12
"""How many lines at the end of a failed result are shown: an error is at the end, and worth more space."""
MOST_DETAIL = 20_000
LONGEST_LINE = 2_000
_TAB = 4


class Kind(StrEnum):
    """What an entry is."""

    MESSAGE = "message"
    THOUGHT = "thought"
    TOOL = "tool"
    RESULT = "result"
    ERROR = "error"
    NOTE = "note"
    TEXT = "text"
    """A line of a program that prints no events."""


class Entry(Struct, frozen=True, kw_only=True):
    """One thing that happened in a session.

    `text` is what is always shown. If `more` lines are folded, `detail` is the whole text with them, as far
    as it is kept; `ends` means that `text` is the end of it, else its beginning. `nested` means that a helper
    agent did it. `continues` means that it adds to the message before it.
    """

    kind: Kind
    text: str
    detail: str = ""
    more: int = 0
    ends: bool = False
    nested: bool = False
    continues: bool = False


def result(output: str, *, failed: bool = False, nested: bool = False) -> Entry:
    """Return the result of a tool: the first lines, or of a failure the last ones, and the rest folded."""
    kind, most = (Kind.ERROR, MOST_FAILED) if failed else (Kind.RESULT, MOST_SHOWN)
    lines = output.strip("\n").split("\n")
    if len(lines) <= most:
        return Entry(kind=kind, text="\n".join(lines), nested=nested)
    shown = lines[-most:] if failed else lines[:most]
    detail = output[-MOST_DETAIL:] if failed else output[:MOST_DETAIL]
    return Entry(
        kind=kind,
        text="\n".join(shown),
        detail=detail.strip("\n"),
        more=len(lines) - most,
        ends=failed,
        nested=nested,
    )


def safe(entry: Entry) -> Entry:
    """Return an entry whose lines are harmless and not too long."""
    return replace(entry, text=_safe(entry.text), detail=_safe(entry.detail))


def _safe(text: str) -> str:
    if not text:
        return text
    kept, cut = text[:MOST_DETAIL], len(text) - MOST_DETAIL
    lines = [_line(line) for line in kept.split("\n")]
    if cut > 0:
        lines.append(f"… {cut:,} more characters")
    return "\n".join(lines)


def _line(line: str) -> str:
    plain = neutral(line.expandtabs(_TAB) if "\t" in line else line)
    cut = len(plain) - LONGEST_LINE
    return plain if cut <= 0 else f"{plain[:LONGEST_LINE]}… {cut:,} more characters"

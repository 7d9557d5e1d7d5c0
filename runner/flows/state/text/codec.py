"""How values are written in the text: scalars after a key, bullets of a list, cells of a table.

For every value `decode(encode(value)) == value`. Blanks are space and tab only: other
Unicode whitespace belongs to the value. Quotes are needed only where the plain text would be read as
something else: a comment, a placeholder of the template, surrounding blanks, a line break.
"""

import re
from functools import lru_cache

from msgspec import Struct

from isolation.patterns import pattern

BLANKS = " \t\r"
NOTHING = ("none", "n/a")
"""Bullets that say that a list is empty."""

_LONGEST_NOTHING = 12
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {"n": "\n", "r": "\r"}
_QUOTED = pattern(r'"((?:[^"\\\n]|\\.)*)"[ \t\r]*(?:(?:#|←|<!--)[^\n]*)?')
_SINGLE = pattern(r"'((?:[^'\n]|'')*)'[ \t\r]*(?:(?:#|←|<!--)[^\n]*)?")
_ESCAPED = pattern(r"\\(.)")
_REMARK = pattern(r"[ \t]*(?:←|<!--)|[ \t]+#|^#")
_NOTE = pattern(r"[ \t]*(?:←|<!--)")
_BREAK = pattern(r"[ \t]*(?:\r\n|\r|\n)[ \t]*")
_CELL_BORDER = pattern(r"(?<!\\)\|")


class Scalar(Struct, frozen=True):
    """A decoded value, and how many characters of the raw text it takes; what follows is a remark.

    `placeholder`: the value is the template's own, a description in brackets without quotes.
    """

    value: str
    length: int
    quoted: bool
    placeholder: bool = False


# Files of one project repeat the same values; the caches make reading a thousand of them faster.
@lru_cache(maxsize=2048)
def decode_word(raw: str) -> Scalar:
    """Read the word after a key; a `#` remark may follow it."""
    return _decode(raw, _REMARK)


@lru_cache(maxsize=2048)
def decode_text(raw: str) -> Scalar:
    """Read the free text after a key; it may contain a `#`."""
    return _decode(raw, _NOTE)


def _decode(raw: str, remarks: re.Pattern[str]) -> Scalar:
    if raw[:1] in {'"', "'"}:
        quoted = _QUOTED.fullmatch(raw)
        if quoted:
            return Scalar(_ESCAPED.sub(_unescape, quoted[1]), quoted.end(1) + 1, True)
        single = _SINGLE.fullmatch(raw)
        if single:
            return Scalar(single[1].replace("''", "'"), single.end(1) + 1, True)
    remark = remarks.search(raw) if ("#" in raw or "←" in raw or "<" in raw) else None
    value = (raw[: remark.start()] if remark else raw).rstrip(BLANKS)
    return Scalar(value, len(value), False, is_placeholder(value))


def encode_scalar(value: str) -> str:
    """Return free text as it is written after a key."""
    plain = decode_word(value)
    if plain.value == value and not plain.quoted and not _needs_quotes(value):
        return value
    return quote(value)


def quote(value: str) -> str:
    """Return a value in double quotes."""
    return '"' + "".join(_ESCAPES.get(character, character) for character in value) + '"'


def is_placeholder(value: str) -> bool:
    """Return whether a plain value is the template's own: a description in brackets."""
    return value.startswith("[") and value.endswith("]")


def decode_bullet(raw: str) -> str | None:
    """Read a bullet's text; None if it only says that the list is empty."""
    text = _BREAK.sub(" ", raw).strip(BLANKS) if "\n" in raw else raw.strip(BLANKS)
    if text[:1].isalpha() and len(text) > _LONGEST_NOTHING:
        return text
    if text[:1] == '"':
        quoted = _QUOTED.fullmatch(text)
        if quoted and text.endswith('"'):
            return _ESCAPED.sub(_unescape, quoted[1])
    return None if _says_nothing(text) else text


def encode_bullet(value: str) -> str:
    """Return a bullet's line."""
    if decode_bullet(value) == value and "\n" not in value and "\r" not in value:
        return f"- {value}"
    return f"- {quote(value)}"


@lru_cache(maxsize=2048)
def decode_row(raw: str) -> tuple[str, ...]:
    """Split a table's line, without its first border, into cells."""
    if raw[:1] == " " and raw[-2:] == " |" and "  " not in raw and "\\" not in raw and "\t" not in raw:
        tight = raw[1:-2].split(" | ")
        if raw.count("|") == len(tight):
            return tuple(tight)
    if "\\" in raw:
        cells = [cell.replace("\\|", "|").strip(BLANKS) for cell in _CELL_BORDER.split(raw)]
    else:
        cells = [cell.strip(BLANKS) for cell in raw.split("|")]
    if len(cells) > 1 and not cells[-1]:
        cells.pop()
    return tuple(cells)


def encode_row(cells: tuple[str, ...]) -> str:
    """Return a table's line."""
    return "| " + " | ".join(fold(cell).replace("|", "\\|") for cell in cells) + " |"


def fold(text: str) -> str:
    """Return text as one line without surrounding blanks, as a cell needs it."""
    return _BREAK.sub(" ", text).strip(BLANKS)


def _says_nothing(text: str) -> bool:
    return not text or is_placeholder(text) or text.lower().rstrip(".") in NOTHING


def _needs_quotes(value: str) -> bool:
    braced = value.startswith("{") or is_placeholder(value)
    return braced or value != value.strip(BLANKS) or "\n" in value or "\r" in value


def _unescape(found: re.Match[str]) -> str:
    return _UNESCAPES.get(found[1], found[1])

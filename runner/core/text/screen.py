"""Makes text of unknown origin safe for a terminal, and measures it in terminal cells.

Nothing that `neutral` returns can move the cursor, change colors or titles, reorder text or
break a line. Time and memory are proportional to the input, whatever it contains.
"""

import unicodedata
from collections.abc import Sequence

from isolation.patterns import pattern

ELLIPSIS = "…"
TAIL_BYTES = 4096

# A string's body ends before anything that could begin another; else many beginnings cost quadratic time.
_STRINGS = (
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])"
    r"[^\x07\x1b\x90\x98\x9c-\x9f\n]*(?:\x07|\x1b\\|\x9c)"
)
_CSI = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
_OTHER = r"\x1b[ -/]*[0-~]?"
_SEQUENCES = pattern(f"{_STRINGS}|{_CSI}|{_OTHER}")
_BREAKS = pattern("[\n\v\f\x85\u2028\u2029]+")
_CONTROLS = pattern("[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = pattern("[\ud800-\udfff]")


def neutral(text: str, width: int | None = None) -> str:
    """Return `text` as one safe line, at most `width` cells wide.

    Of a progress line that carriage returns redraw, the newest version is kept.
    """
    if not (text.isascii() and text.isprintable()):
        text = _SEQUENCES.sub("", text)
        lines = (line.rstrip("\r").rpartition("\r")[2] for line in _BREAKS.split(text))
        text = " ".join(line for line in lines if line)
        text = _CONTROLS.sub("", text.replace("\t", " "))
        text = _SURROGATES.sub("\ufffd", text)
    return text if width is None else shorten(text, width)


def cells(text: str) -> int:
    """Count the terminal cells that safe text takes."""
    return len(text) if text.isascii() else sum(_cells_of(character) for character in text)


def widest(texts: Sequence[str]) -> int:
    """Count the terminal cells of the widest of these safe texts."""
    return max(map(cells, texts), default=0)


def fit(texts: Sequence[str], width: int) -> list[tuple[str, str]]:
    """Cut each safe text to `width` cells; return it with the spaces that fill it up to there."""
    fitted = [shorten(text, width) for text in texts]
    return [(text, " " * (width - cells(text))) for text in fitted]


def shorten(text: str, width: int) -> str:
    """Cut safe text to `width` cells; an ellipsis shows that something is missing."""
    if cells(text) <= width:
        return text
    if width < 1:
        return ""
    taken, kept = 0, []
    for character in text:
        taken += _cells_of(character)
        if taken > width - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + ELLIPSIS


def wrap(text: str, width: int) -> list[str]:
    """Break safe text between words into lines of at most `width` cells; long words stay whole."""
    lines: list[str] = []
    for word in text.split():
        if lines and cells(lines[-1]) + 1 + cells(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def folded(text: str, width: int) -> list[str]:
    """Break safe text into lines of at most `width` cells, anywhere, so that nothing is lost."""
    lines, taken = [""], 0
    for character in text:
        size = _cells_of(character)
        if taken + size > max(1, width) and lines[-1]:
            lines.append("")
            taken = 0
        lines[-1] += character
        taken += size
    return lines


def _cells_of(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in {"Mn", "Me", "Cf"} else 1


class LineTail:
    """The newest visible line of a byte stream, in bounded memory.

    A stream without a newline costs no more than one with many. Feeding is cheap; the line is
    decoded and made safe only when it is read.
    """

    def __init__(self) -> None:
        self._window = b""

    def feed(self, chunk: bytes) -> None:
        """Append the next bytes of the stream."""
        visible = chunk.rstrip()
        blank = chunk[len(visible) :]
        # Blank output only ends the line it follows: it must not push that line out of the window.
        end = b"\n" if b"\n" in blank else b"\r" if b"\r" in blank else blank[:1]
        window = (self._window[-TAIL_BYTES:] + visible[-TAIL_BYTES:])[-TAIL_BYTES:]
        if visible or not window.endswith((b"\n", b"\r", b" ")):
            self._window = window + end
        elif end == b"\n":
            self._window = window[:-1] + end

    @property
    def line(self) -> str:
        """The newest line that shows anything, as safe text."""
        for line in reversed(self._window.split(b"\n")):
            text = neutral(line.decode("utf-8", "replace")).strip()
            if text:
                return text
        return ""

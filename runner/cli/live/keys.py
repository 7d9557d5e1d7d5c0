"""The keys of the dashboard: the one list of them, and how the bytes of a terminal become keys."""

import re
from collections.abc import Mapping

from msgspec import Struct

ESCAPE, ENTER, BACKSPACE, PASTE = "esc", "enter", "backspace", "paste:"


class Binding(Struct, frozen=True, kw_only=True):
    """One thing that can be done: the keys for it, how they are shown, in a word, and in a sentence."""

    keys: tuple[str, ...]
    shown: str
    word: str
    help: str


BINDINGS: Mapping[str, Binding] = {
    "up": Binding(keys=("up", "k"), shown="↑ k", word="", help="select the story above"),
    "down": Binding(keys=("down", "j"), shown="↓ j", word="", help="select the story below"),
    "log": Binding(
        keys=(ENTER,),
        shown="⏎",
        word="log",
        help="open the story: branch, folder and its live log; again closes it",
    ),
    "diff": Binding(keys=("d",), shown="d", word="diff", help="show what the story has changed so far"),
    "answer": Binding(
        keys=("a",), shown="a", word="answer", help="open its question; a letter answers, Esc postpones"
    ),
    "stop": Binding(
        keys=("s",), shown="s", word="stop", help="stop the story, after its session or now; asks first"
    ),
    "pause": Binding(keys=("p",), shown="p", word="pause", help="start no more stories, or start them again"),
    "retry": Binding(
        keys=("r",), shown="r", word="retry", help="try the story again; asks for a note to its agent"
    ),
    "filter": Binding(
        keys=("f",),
        shown="f",
        word="filter",
        help="show all stories, those at work, those that need you, ended",
    ),
    "search": Binding(keys=("/",), shown="/", word="", help="show stories whose id or title has a text"),
    "page": Binding(keys=("w",), shown="w", word="page", help="open the run as a page in the browser"),
    "back": Binding(keys=("pageup", "b"), shown="PgUp b", word="", help="scroll the pane back"),
    "forward": Binding(
        keys=("pagedown", " "),
        shown="PgDn Space",
        word="",
        help="scroll the pane forward",
    ),
    "first": Binding(keys=("home", "g"), shown="Home g", word="", help="the start of the pane"),
    "last": Binding(keys=("end", "G"), shown="End G", word="", help="the end of the pane; a log is live"),
    "close": Binding(
        keys=(ESCAPE,), shown="Esc", word="", help="close the pane, else the filter, else the selection"
    ),
    "help": Binding(keys=("?",), shown="?", word="help", help="show these keys"),
    "leave": Binding(keys=("q",), shown="q", word="", help="leave a run that you watch; it continues"),
}
"""Each action with its keys, in the order in which they are shown."""

ACTION_OF: Mapping[str, str] = {key: action for action, one in BINDINGS.items() for key in one.keys}

_NAMES = {
    "A": "up",
    "B": "down",
    "H": "home",
    "F": "end",
    "M": ENTER,
    "1~": "home",
    "4~": "end",
    "5~": "pageup",
    "6~": "pagedown",
    "7~": "home",
    "8~": "end",
}
_PLAIN = {"\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE}
_CSI = re.compile("\x1b\\[([0-?]*)[ -/]*([@-~])")
_SS3 = re.compile("\x1bO(.)", re.DOTALL)
_PARTIAL = re.compile("\x1b(?:\\[[0-?]*[ -/]*|O)?")
_PASTE_BEGIN, _PASTE_END = "\x1b[200~", "\x1b[201~"
MOST_BUFFERED = 1 << 16


def key_line(width: int) -> str:
    """Return the line that names the most useful keys, as many as fit; the last is always help."""
    words = [
        f"{'↑↓' if name == 'down' else one.shown} {one.word}" for name, one in BINDINGS.items() if one.word
    ]
    *others, last = words
    line = "↑↓  "
    for word in others:
        if len(line) + len(word) + len(last) + 2 > width:
            break
        line += f"{word}  "
    return line + last


class KeyDecoder:
    """Turns what a terminal sends into keys; a sequence may come in several parts.

    A key is a printable character, or a name: `up`, `enter`, `esc` … What is pasted is one key that begins
    with `PASTE`, so that no text can press keys. A sequence that means nothing here is dropped.
    """

    def __init__(self) -> None:
        self._bytes = b""
        self._text = ""

    @property
    def waits(self) -> bool:
        """Whether more may follow: a lone Esc is a key only when nothing comes after it."""
        return bool(self._text)

    def feed(self, chunk: bytes) -> list[str]:
        """Return the keys that are complete by now."""
        self._bytes += chunk
        try:
            text, self._bytes = self._bytes.decode(), b""
        except UnicodeDecodeError as error:
            # A character may be cut at the end; anything else that is not text is dropped.
            cut = error.reason == "unexpected end of data"
            text = self._bytes[: error.start].decode() if cut else self._bytes.decode(errors="ignore")
            self._bytes = self._bytes[error.start :] if cut else b""
        self._text += text
        keys: list[str] = []
        while self._text and (found := self._next()) is not None:
            key, size = found
            self._text = self._text[size:]
            if key:
                keys.append(key)
        self._text = self._text[-MOST_BUFFERED:]
        return keys

    def flush(self) -> list[str]:
        """Return what is left when nothing has followed for a moment."""
        left, self._text = self._text, ""
        return [ESCAPE] if left == "\x1b" else []

    def _next(self) -> tuple[str, int] | None:
        """Return the next key, empty if it means nothing, and its length; None if it is not complete."""
        text = self._text
        if not text.startswith("\x1b"):
            key = _PLAIN.get(text[0], text[0])
            return (key if key in _PLAIN.values() or text[0].isprintable() else ""), 1
        if text.startswith(_PASTE_BEGIN):
            end = text.find(_PASTE_END)
            return None if end < 0 else (PASTE + text[len(_PASTE_BEGIN) : end], end + len(_PASTE_END))
        if found := _CSI.match(text):
            name = found[1] + found[2] if found[2] == "~" else found[2]
            return _NAMES.get(name, ""), found.end()
        if found := _SS3.match(text):
            return _NAMES.get(found[1], ""), found.end()
        return None if _PARTIAL.fullmatch(text) else (ESCAPE, 1)

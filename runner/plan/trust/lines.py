"""Where in its file a command stands, for the list that the user reads before the yes.

Found only for what is asked about: a plan of a thousand stories does not pay for it.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from isolation.patterns import pattern
from runner.core.errors import BacklogError
from runner.core.trust import Asked
from runner.plan.stories.files import LIST_SUFFIXES, Entry, list_entries, markdown_entry, read_text

_KEYS = {
    "story: command": ("command",),
    "story: verify": ("verify",),
    "story: agent": ("agent", "escalate"),
}
_FLOW = pattern(r"flow .+: (command)")


def with_lines(top: Path, asked: Sequence[Asked]) -> tuple[Asked, ...]:
    """Return what is asked with the lines of stories and flows, as far as they can be found."""
    return tuple(replace(one, places=tuple(_place(top, one, place) for place in one.places)) for one in asked)


def _place(top: Path, one: Asked, place: str) -> str:
    flow = _FLOW.fullmatch(one.what)
    keys = (flow[1],) if flow else _KEYS.get(one.what, ())
    file, _, number = place.partition("#")
    path = top / file
    if not keys or not path.is_file():
        return place
    try:
        text = read_text(path, file)
        entries = _entries(path, file, text, number)
    except BacklogError:
        return place
    line = _line_of_story(entries, keys, one.value)
    line = line or _line_with(text, keys, one.value)
    return f"{file}:{line}" if line else place


def _entries(path: Path, file: str, text: str, number: str) -> list[Entry]:
    """Read the stories of a file; with a number, only that one of a list."""
    if path.suffix.lower() not in LIST_SUFFIXES:
        return [markdown_entry(path, file, text)]
    entries = list_entries(path, file, text, required=False)
    return entries[int(number) - 1 : int(number)] if number.isdecimal() else entries


def _line_of_story(entries: Sequence[Entry], keys: Sequence[str], value: str) -> int | None:
    """Return the line that YAML knows for a value."""
    found = (entry.position(place).line for entry in entries for place in _places(entry, keys, value))
    return next((line for line in found if line), None)


def _places(entry: Entry, keys: Sequence[str], value: str) -> Iterator[tuple[str | int, ...]]:
    for key in keys:
        written: Any = entry.data.get(key)
        listed = written if isinstance(written, list) else [written]
        words = [str(word) for word in listed]
        if key == "command" and value in {shlex.join(words), shlex.join(("sh", "-c", *words[:1]))}:
            yield (key,)
        yield from ((key, index) for index, word in enumerate(words) if word == value)


def _line_with(text: str, keys: Sequence[str], value: str) -> int | None:
    """Return the line of a text that has the value, where no parser says: the first after one of the keys."""
    words = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    words |= {_last_word(value), json.dumps(_last_word(value))[1:-1]}
    begun = False
    for line, written in enumerate(text.split("\n"), 1):
        begun = begun or any(key in written for key in keys)
        if begun and any(word in written for word in words):
            return line
    return None


def _last_word(value: str) -> str:
    try:
        return shlex.split(value)[-1]
    except (ValueError, IndexError):
        return value

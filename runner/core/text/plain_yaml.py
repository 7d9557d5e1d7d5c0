"""Reads YAML that is plain: lines of `key: value`, and lists of texts.

To load the YAML library takes longer than to read a hundred stories, and most front matter has nothing that
needs it. Only what YAML certainly reads in the same way is read here; a test compares the two.
"""

import re
from typing import TypeAlias

from isolation.patterns import pattern

Plain: TypeAlias = str | int | bool | list[str]

# A text without quotes has nothing that means something in YAML: no colon, remark or bracket, no sign at its
# beginning, no blank at its end.
_TEXT = r"[A-Za-z](?:[A-Za-z0-9_./,()+*=<>@&;'!?$%^~| -]*[A-Za-z0-9_./()+*=<>@&;'!?$%^~|-])?"
_QUOTED = r'"[^"\\\x00-\x1f\x7f-\U0010ffff]*"'
_ITEM = r"[A-Za-z][A-Za-z0-9_./*-]*"
_LINE = pattern(
    r"(?P<key>[a-z][a-z0-9_-]{0,60}):"
    rf"(?: +(?:(?P<text>{_TEXT}|{_QUOTED})|(?P<number>0|[1-9][0-9]{{0,8}})"
    rf"|\[(?P<items>{_ITEM}(?:, ?{_ITEM})*)\]))?"
)
_LISTED = pattern(rf"(?P<indent> *)- (?P<text>{_TEXT}|{_QUOTED})")
_NO_TEXT = frozenset({"true", "false", "yes", "no", "on", "off", "null"})
"""What is no text in YAML, in capitals or not."""


def plain_mapping(text: str) -> dict[str, Plain] | None:
    """Return the mapping that a text is in YAML; None if YAML itself has to be asked."""
    read: dict[str, Plain] = {}
    open_list: list[str] | None = None  # which the last key began
    indents = set()
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        item = _LISTED.fullmatch(line)
        if item is not None and open_list is not None and _is_text(item["text"]):
            open_list.append(item["text"].strip('"'))
            indents.add(item["indent"])
            continue
        found = _LINE.fullmatch(line)
        if found is None or found["key"] in read or found["key"] in _NO_TEXT:
            return None
        value = _value(found)
        if value is None or open_list == [] or len(indents) > 1:
            return None
        read[found["key"]] = value
        open_list, indents = (value if value == [] else None), set()
    return None if not read or open_list == [] or len(indents) > 1 else read


def _value(found: re.Match[str]) -> Plain | None:
    """Return the value of a line; an empty list if its items follow."""
    text = found["text"]
    if found["number"]:
        return int(found["number"])
    if found["items"]:
        items = [item.strip() for item in found["items"].split(",")]
        return items if all(map(_is_text, items)) else None
    if text is None:
        return []
    if text in {"true", "false"}:
        return bool(text == "true")
    return text.strip('"') if _is_text(text) else None


def _is_text(written: str) -> bool:
    return written.lower() not in _NO_TEXT

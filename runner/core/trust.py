"""What the files of a repository would run or switch off, and how that differs from what the user agreed to.

A demand is one such thing: a verify command, a hook, an agent, a variable of its environment, a guard that is
off. The user agrees to what is demanded, not to the line where it is written, so moving a line asks nothing.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

IMPORTED = "imported"
"""The option of a run that came by shards: another machine has written it, so it brings no settings."""

OF_STORIES = "story: "
"""How the kinds begin that each story has a value of its own for."""

_PLACES_SHOWN = 3

Agreed: TypeAlias = Collection[tuple[str, str]]


class Demand(Struct, frozen=True, kw_only=True):
    """What a file of the repository asks for: the key or kind, its value, and where it is written."""

    what: str
    value: str
    where: str

    @property
    def content(self) -> tuple[str, str]:
        """What the user agrees to."""
        return self.what, self.value


class Asked(Struct, frozen=True, kw_only=True):
    """The same demand at all its places."""

    what: str
    value: str
    places: tuple[str, ...]

    @property
    def text(self) -> str:
        """The value as it is written in the file: of a command that is one text, that text."""
        return text_of(self.what, self.value)

    @property
    def where(self) -> str:
        """Its places in words, the first few of them by name."""
        shown, others = self.places[:_PLACES_SHOWN], len(self.places) - _PLACES_SHOWN
        return ", ".join(shown) + (f" and {others} more" if others > 0 else "")


def is_imported(options: Mapping[str, Any]) -> bool:
    """Whether a run with these options came by shards."""
    return bool(options.get(IMPORTED))


def not_agreed(demands: Iterable[Demand], agreed: Agreed) -> tuple[Asked, ...]:
    """Return what the user has not agreed to yet, each thing once."""
    places: dict[tuple[str, str], list[str]] = {}
    for demand in demands:
        if demand.content not in agreed:
            places.setdefault(demand.content, []).append(demand.where)
    return tuple(
        Asked(what=what, value=value, places=tuple(dict.fromkeys(found)))
        for (what, value), found in places.items()
    )


def replaced_by(asked: Asked, agreed: Agreed, demands: Iterable[Demand]) -> tuple[str, ...]:
    """Return the values of the same kind that the user agreed to and that are no longer demanded.

    A new story replaces no other.
    """
    if asked.what.startswith(OF_STORIES):
        return ()
    current = {demand.content for demand in demands}
    return tuple(
        value for what, value in sorted(agreed) if what == asked.what and (what, value) not in current
    )


def text_of(what: str, value: str) -> str:
    """Return a value as its author wrote it; what the user agrees to is the value itself."""
    if not what.endswith("command") or not value.startswith("sh -c "):
        return value
    try:
        words = shlex.split(value)
    except ValueError:
        return value
    return words[2] if len(words) == 3 and shlex.join(words) == value else value  # noqa: PLR2004  sh -c TEXT

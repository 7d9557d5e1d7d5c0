"""Keys of a file that no one declared: all of them are reported at once, each with the nearest name."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from runner.core.text.names import did_you_mean
from runner.core.text.screen import shorten

_MOST = 20
_LONGEST = 60


class UnknownKey(Struct, frozen=True, kw_only=True):
    """One such key: the file with the line if that is known, the key, and the names that would fit there."""

    where: str
    key: str
    known: tuple[str, ...]

    @property
    def nearest(self) -> str:
        """The name that was probably meant, as a sentence; empty if none is near."""
        return did_you_mean(self.key.rpartition(".")[2], self.known)


def message_and_hint(keys: Sequence[UnknownKey], *, listed: str = "known here") -> tuple[str, str]:
    """Describe one or more unknown keys in one message, with its hint."""
    if len(keys) == 1:
        (only,) = keys
        return f"{only.where}: unknown key '{only.key}'", only.nearest or _names(listed, only.known)
    lines = [
        f"  {item.where}: '{shorten(item.key, _LONGEST)}'" + (f": {item.nearest}" if item.nearest else "")
        for item in keys[:_MOST]
    ]
    lines += [f"  and {len(keys) - _MOST} more"] if len(keys) > _MOST else []
    far = dict.fromkeys(item.known for item in keys if not item.nearest)
    hint = "correct or remove them; " + _joined(listed, far) if far else "correct or remove them."
    return "\n".join([f"{len(keys)} unknown keys:", *lines]), hint


def _joined(listed: str, groups: Iterable[tuple[str, ...]]) -> str:
    return " ".join(_names(listed, known) for known in groups)


def _names(listed: str, known: Iterable[str]) -> str:
    return f"{listed}: {', '.join(known)}."

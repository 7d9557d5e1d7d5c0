"""The keys of a story: what each one holds, declared once, and the reading of values that are plainly right.

Most stories are right, and to load pydantic takes longer than to read a hundred of them. So it is asked only
about the others, with a model that is made from the same declaration (`model.py`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from runner.core.settings import BOUNDS

_MAX_PRIORITY = 1_000_000
_MAX_MINUTES = 1_000_000.0
_MAX_NEED = 1e15
LABEL = "label"
"""The need that is a word, or a list of words, which a worker must have as labels."""


class Key(Struct, frozen=True, kw_only=True):
    """What a key holds: values of a type that pass the checks, one or a list; `reads` prepares what is given.

    Checks and `reads` return the value, and raise ValueError with a reason.
    """

    holds: type
    checks: tuple[Callable[[Any], Any], ...] = ()
    many: bool = False
    reads: Callable[[Any], Any] | None = None


class Fields(Struct, frozen=True, kw_only=True):
    """The values of a story's keys. Absent ones are None, so that each default is in one place."""

    id: str | None = None
    title: str | None = None
    prompt: str | None = None
    priority: int | None = None
    estimate: float | None = None
    depends_on: list[str] | None = None
    owns: list[str] | None = None
    flow: str | None = None
    agent: list[str] | None = None
    escalate: list[str] | None = None
    command: list[str] | None = None
    verify: list[str] | None = None
    verify_minutes: float | None = None
    max_attempts: int | None = None
    story_minutes: float | None = None
    dialect: str | None = None
    mode: str | None = None
    allow_no_change: bool | None = None
    ports: int | None = None
    best_of: int | None = None
    review: str | None = None
    labels: list[str] | None = None
    origin: str | None = None
    origin_digest: str | None = None
    needs: dict[str, Any] | None = None
    repo: str | None = None


def require_sound(text: str) -> str:
    """Refuse characters that cannot be passed to a program, a file or a terminal."""
    if "\0" in text:
        raise ValueError("contains a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("contains half a character (a lone surrogate)")
    return text


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


def _bounded(number: int) -> int:
    if abs(number) > _MAX_PRIORITY:
        raise ValueError(f"must be from -{_MAX_PRIORITY} to {_MAX_PRIORITY}")
    return number


def _positive(minutes: float) -> float:
    if not 0 < minutes <= _MAX_MINUTES:
        raise ValueError(f"must be above 0 and at most {_MAX_MINUTES:.0f}")
    return minutes


def _within(setting: str) -> Callable[[int], int]:
    """Return the check for a number that has the bounds of a setting."""
    bounds = BOUNDS[setting]

    def check(number: int) -> int:
        if not bounds.low <= number <= bounds.high:
            raise ValueError(f"must be from {bounds.low:g} to {bounds.high:g}")
        return number

    return check


def _needs(needs: dict[Any, Any]) -> dict[str, Any]:
    """Check what a worker of a cluster must have: amounts by name, and labels."""
    for name, value in needs.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError("needs names, such as gpu: 1 or label: linux")
        if name == LABEL:
            labels = value if isinstance(value, list) else [value]
            if not labels or not all(isinstance(label, str) and label.strip() for label in labels):
                raise ValueError("has a label that is not a text, nor a list of texts")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MAX_NEED:
            raise ValueError(f"has an amount of {name} that is not a number above 0")
    return needs


def needs_of(needs: Mapping[str, Any]) -> tuple[tuple[str, float | str], ...]:
    """Return what a worker must have as pairs, one for each label."""
    pairs: list[tuple[str, float | str]] = []
    for name, value in needs.items():
        pairs += [(name, each) for each in (value if isinstance(value, list) else [value])]
    return tuple(pairs)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _argv(value: Any) -> Any:
    if isinstance(value, str) and value.strip():
        return ["sh", "-c", value]
    if value in ("", [], None) or (isinstance(value, str) and not value.strip()):
        raise ValueError("is empty")
    return value


_TEXT = Key(holds=str, checks=(require_sound,))
_FILLED = Key(holds=str, checks=(require_sound, _filled))
_TEXTS = Key(holds=str, checks=(require_sound, _filled), many=True, reads=_listed)
_MINUTES = Key(holds=float, checks=(_positive,))

KEYS: Mapping[str, Key] = {
    "id": _TEXT,
    "title": _TEXT,
    "prompt": _TEXT,
    "priority": Key(holds=int, checks=(_bounded,)),
    "estimate": _MINUTES,
    "depends_on": _TEXTS,
    "owns": _TEXTS,
    "flow": _TEXT,
    "agent": _TEXTS,
    "escalate": _TEXTS,
    "command": Key(holds=str, checks=(require_sound,), many=True, reads=_argv),
    "verify": _TEXTS,
    "verify_minutes": _MINUTES,
    "max_attempts": Key(holds=int, checks=(_within("max-attempts"),)),
    "story_minutes": _MINUTES,
    "dialect": _TEXT,
    "mode": _FILLED,
    "allow_no_change": Key(holds=bool),
    "ports": Key(holds=int, checks=(_within("ports"),)),
    "best_of": Key(holds=int, checks=(_within("best-of"),)),
    "review": _FILLED,
    "labels": _TEXTS,
    "origin": _TEXT,
    "origin_digest": _TEXT,
    "needs": Key(holds=dict, checks=(_needs,)),
    "repo": _FILLED,
}


def plain_fields(given: Mapping[str, Any]) -> Fields | None:
    """Return the values if every one is plainly right; None if one needs a closer look."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        key = KEYS.get(name)
        if key is None:
            return None
        try:
            read = key.reads(value) if key.reads else value
            read = float(read) if key.holds is float and type(read) is int else read
            items = read if key.many and type(read) is list else [read]
            if key.many is not (type(read) is list) or any(type(item) is not key.holds for item in items):
                return None
            for check in key.checks:
                items = [check(item) for item in items]
        except (ValueError, OverflowError):
            return None
        found[name] = items if key.many else items[0]
    return Fields(**found)

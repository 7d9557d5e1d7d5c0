"""Read values out of the JSON of a service, which may hold anything."""

from collections.abc import Mapping
from typing import Any


def text_at(value: Any, *keys: str) -> str:
    """Return a text below some keys, empty if there is none; whatever was escaped in it, it encodes."""
    found = at(value, *keys)
    return found.encode("utf-8", "replace").decode() if isinstance(found, str) else ""


def number_at(value: Any, *keys: str) -> int:
    """Return a number of something, or of how much, below some keys; 0 if there is none."""
    found = at(value, *keys)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def list_at(value: Any, *keys: str) -> list[Any]:
    """Return a list below some keys; empty if there is none."""
    found = at(value, *keys)
    return found if isinstance(found, list) else []


def at(value: Any, *keys: str) -> Any:
    """Return what is below some keys; None if there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value

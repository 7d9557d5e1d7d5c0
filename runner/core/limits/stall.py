"""Whether a session is still alive, judged by many signs, so that silence alone never counts as a stall.

Output, processor time, processes that come and go, files and commits count; so does a wait that the
session has announced. Only a session that shows none of these for twice the stall limit has stalled.
"""

import re

from msgspec import Struct

from isolation.patterns import pattern

BUSY_SHARE = 0.01
"""A process tree that uses less than this share of a core does not count as alive for it."""

LONGEST_WAIT = 6 * 3600.0
"""An announced wait counts up to this; a run waits no longer for a service."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WAIT = pattern(
    r"(?:retry(?:ing)?|try(?:ing)? again|wait(?:ing)?|backing off|back off|resets?|sleep(?:ing)?)\b"
    r"[^\d\n]{0,60}?(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)\b",
    re.IGNORECASE,
)
_RETRY_AFTER = pattern(r"retry-after[\"']?\s*[:=]\s*(\d+)", re.IGNORECASE)


class Signs(Struct, frozen=True, kw_only=True):
    """What can be observed about a session at one instant; only differences mean something."""

    printed: int = 0
    cpu_seconds: float = 0.0
    processes: int = 0


def sign_of_life(before: Signs, now: Signs, *, seconds: float) -> str:
    """Return what shows that the session was alive during these seconds; empty when nothing does."""
    if now.printed != before.printed:
        return "output"
    if now.cpu_seconds - before.cpu_seconds >= BUSY_SHARE * seconds:
        return "processor time"
    return "processes" if now.processes != before.processes else ""


def announced_wait(line: str, most: float = LONGEST_WAIT) -> float:
    """Return the seconds that a session announces to wait, such as `retrying in 300 s`; 0 for none."""
    header = _RETRY_AFTER.search(line)
    if header is not None:
        return min(most, float(header.group(1)))
    found = _WAIT.search(line)
    if found is None:
        return 0.0
    unit = found.group(2).lower()
    scale = _UNITS["ms" if unit.startswith(("ms", "milli")) else unit[0]]
    return min(most, float(found.group(1)) * scale)

"""The rules by which other programs accept a line of `sessions.jsonl`, written down from what they demand.

The names and bounds are those of version 1 to 3 of that schema; a field that is not listed may hold anything.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

REQUIRED = {
    *("session_id", "session_type", "started_at", "completed_at", "total_waves", "waves"),
    *("agent_summary", "total_agents", "total_files_changed"),
}
TYPES = {"feature", "deep", "housekeeping"}
SUMMARY = ("complete", "partial", "failed", "spiral")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")

Check = Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _instant(value: Any) -> bool:
    return isinstance(value, str) and _INSTANT.fullmatch(value) is not None


def _wave(value: Any) -> bool:
    return (
        isinstance(value, dict) and _number(value.get("wave")) and value["wave"] >= 1 and _name(value["role"])
    )


def _waves(value: Any) -> bool:
    return isinstance(value, list) and all(map(_wave, value))


def _summary(value: Any) -> bool:
    return isinstance(value, dict) and all(_number(value.get(name)) for name in SUMMARY)


_CHECKS: Mapping[str, Check] = {
    "session_id": _name,
    "session_type": TYPES.__contains__,
    "started_at": _instant,
    "completed_at": _instant,
    "total_waves": _number,
    "waves": _waves,
    "agent_summary": _summary,
    "total_agents": _number,
    "total_files_changed": _number,
}
_NULLABLE: Mapping[str, Check] = {
    "schema_version": {0, 1, 2, 3}.__contains__,
    "status": {"completed", "abandoned"}.__contains__,
    "agent_identity": _name,
    "worktree_path": _name,
    "parent_run_id": _name,
    "branch": lambda value: isinstance(value, str),
    "notes": lambda value: isinstance(value, str),
    "effectiveness": lambda value: isinstance(value, dict),
    "duration_seconds": _number,
}


def flaws(record: Mapping[str, Any]) -> list[str]:
    """Return why a record would be refused; empty for a good one."""
    found = [f"{name} is missing" for name in sorted(REQUIRED - record.keys())]
    found += [f"{name}: {record[name]!r}" for name, good in _CHECKS.items() if not good(record.get(name))]
    found += [
        f"{name}: {record[name]!r}"
        for name, good in _NULLABLE.items()
        if record.get(name) is not None and not good(record[name])
    ]
    if not found and _moment(record["completed_at"]) < _moment(record["started_at"]):
        found.append("it ended before it started")
    return found


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)

"""The lock file by which session managers see each other: `.orchestrator/session.lock` in a checkout.

Each checkout of a repository has at most one. It counts while its last heartbeat is younger than its own
limit; its process says nothing, since some programs write it from a process that ends at once. A file that is
not such a lock counts as none. A run has its own lock in the main checkout as long as no other is there: one
of another session is never replaced or removed, not even a stale one.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from isolation.files.disk import replace_file
from isolation.files.plain import read_plain
from isolation.paths import EXCHANGE
from runner.core.schedule.exclusivity import ActiveSession, session_type
from runner.core.text.amounts import amount
from runner.core.text.instants import from_iso, iso
from runner.core.text.names import one_line
from runner.core.text.screen import shorten
from runner.machine.registry import PEER_SECONDS, SessionEntry

NAME = f"{EXCHANGE}/session.lock"
WRITER = "autopilot-multi"

_HOUR = 3600
_LARGEST = 64 << 10
_LONGEST_TEXT = 200
_TEXTS = ("session_id", "mode", "started_at", "host")
_NUMBERS = ("pid", "ttl_hours")


class SessionLock:
    """The lock of one checkout, as long as it is ours. The caller holds the lease of the repository."""

    def __init__(self, checkout: Path) -> None:
        self._path = checkout / NAME
        self._started_at = ""

    def write(self, entry: SessionEntry) -> None:
        """Write or renew the lock; one of another session stays."""
        now = iso(entry.heartbeat)
        self._started_at = self._started_at or now
        values = {
            "session_id": entry.session_id,
            "started_at": self._started_at,
            "last_heartbeat": now,
            "mode": session_type(entry.mode),
            "pid": entry.pid,
            "host": entry.host,
            "ttl_hours": PEER_SECONDS / _HOUR,
            "autopilot_active": True,
            "autopilot_run_id": entry.run_id,
            "writer": WRITER,
        }
        data = json.dumps(values, indent=2).encode() + b"\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(self._path):
            self._create(data)
        elif self._is_ours():
            replace_file(self._path, data, durable=False)

    def withdraw(self, entry: SessionEntry) -> None:
        """Remove the lock if it is still that of the entry; repeating it is harmless."""
        values = _load(self._path)
        if values is not None and values.get("session_id") == entry.session_id:
            self._path.unlink(missing_ok=True)

    def _create(self, data: bytes) -> None:
        """Create the file with its content, unless another session does so first."""
        draft = self._path.with_name(f".session.lock.{os.getpid()}.tmp")
        try:
            draft.write_bytes(data)
            with suppress(FileExistsError):
                os.link(draft, self._path)
        finally:
            draft.unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        """Return whether a run wrote it: this one, or one that was killed, since only one can be alive."""
        values = _load(self._path)
        return values is not None and values.get("writer") == WRITER


def locked(checkouts: Iterable[Path], now: float) -> tuple[ActiveSession, ...]:
    """Return the sessions of other programs whose locks in these checkouts count."""
    found = []
    for checkout in checkouts:
        path = checkout / NAME
        values = _load(path)
        if values is None or values.get("writer") == WRITER or not _is_live(values, now):
            continue
        mode = _text(values["mode"])
        who = f"{mode} session {_text(values['session_id'])}"
        where = f"pid {values['pid']} on {_text(values['host'])}"
        found.append(ActiveSession(description=f"{who} ({where}, lock {_text(str(path))})", mode=mode))
    return tuple(found)


def _load(path: Path) -> dict[str, Any] | None:
    """Read a lock; None if there is none, or something else."""
    try:
        values = json.loads(read_plain(path, _LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or not all(isinstance(values.get(name), str) for name in _TEXTS):
        return None
    numbers = [values.get(name) for name in _NUMBERS]
    return values if all(amount(each) is not None for each in numbers) else None


def _is_live(values: dict[str, Any], now: float) -> bool:
    beat = values.get("last_heartbeat")
    at = from_iso(beat if isinstance(beat, str) and beat else values["started_at"])
    return at is not None and now - at < values["ttl_hours"] * _HOUR


def _text(value: str) -> str:
    # Written by others, and shown on a terminal.
    return shorten(one_line(value), _LONGEST_TEXT)

"""How much of a run a collector already has: one small file for each run and collector.

It is written after the collector has confirmed. If the process is killed in between, what was sent last is
sent again, with the same ids.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from isolation.files.disk import replace_file
from isolation.paths import run_dir
from runner.core.model import RunId


class Position:
    """The number of a run's events whose spans one collector has."""

    def __init__(self, common_dir: Path, run_id: RunId, endpoint: str) -> None:
        name = sha256(endpoint.encode("utf-8", "replace")).hexdigest()[:12]
        self._path = run_dir(common_dir, run_id) / f"export-{name}.json"

    def load(self) -> int:
        """Return the number of events; 0 if nothing was sent, or that is not known."""
        try:
            known = json.loads(self._path.read_bytes())["events"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return 0
        return known if isinstance(known, int) and known > 0 else 0

    def save(self, events: int) -> None:
        """Remember that the collector has the spans of so many events."""
        # A power cut may lose it, which costs no more than a kill does.
        replace_file(self._path, json.dumps({"events": events}).encode(), durable=False)

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Be the only process that exports this run to this collector; yields whether it is."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

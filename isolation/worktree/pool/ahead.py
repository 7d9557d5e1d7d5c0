"""Spares are looked at while the program still loads, so that stories need not wait for it.

That is before the run has the lease. So only what holds until then counts: spares that no session could
write to, neither those of the run that made them nor those of this one. A run that is active in between is
noticed by its lease, which changes the program's folder; after that everything is looked at again.
"""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from isolation.errors import IsolationError
from isolation.files.lease import holder_is_alive
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir
from isolation.worktree.pool.claim import is_unchanged
from isolation.worktree.pool.seals import Seal, by_usefulness, load_seals

_SETTLED = 10**8
"""For how many nanoseconds a folder must be unchanged, so that its next change gets another time."""


class _Looks:
    """The spares to be looked at, and what was found."""

    def __init__(self, repository: Repository, seals: Sequence[Seal], changed: int) -> None:
        self.changed = changed
        self._repository = repository
        self._lock = threading.Lock()
        self._waiting = list(seals)
        self._begun: dict[Seal, threading.Event] = {}
        self._good: set[Seal] = set()

    def begin(self) -> None:
        """Look in the background; the end of the program does not wait for it."""
        for _ in range(min(os.cpu_count() or 1, len(self._waiting))):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    return
                seal = self._waiting.pop(0)
                begun = self._begun[seal] = threading.Event()
            try:
                if is_unchanged(self._repository, seal, thorough=False):
                    self._good.add(seal)
            except (IsolationError, OSError):
                pass  # the story that needs it looks again, and says it
            finally:
                begun.set()

    def found(self, seal: Seal) -> bool:
        """Whether a spare was looked at and is good; waits for a look that has begun."""
        with self._lock:
            begun = self._begun.get(seal)
            if begun is None and seal in self._waiting:
                self._waiting.remove(seal)
        if begun is not None:
            begun.wait()
        return seal in self._good


_looks: dict[Path, _Looks] = {}


def look_ahead(repository: Repository, base: str, stories: int) -> None:
    """Begin to look at the spares that the first stories at a commit will claim. Another run has its own."""
    common = repository.common_dir
    seals = [seal for seal in load_seals(common) if seal.guarded]
    if not seals or holder_is_alive(common):
        return
    changed = autopilot_dir(common).stat().st_mtime_ns
    if abs(time.time_ns() - changed) > _SETTLED:
        looks = _looks[common] = _Looks(repository, by_usefulness(seals, base)[:stories], changed)
        looks.begin()


def drop_stale(common_dir: Path, changed: int) -> None:
    """Drop what was found if the program's folder, last changed then, has changed since the look began."""
    looks = _looks.get(common_dir)
    if looks is not None and looks.changed != changed:
        del _looks[common_dir]


def was_looked_at(repository: Repository, seal: Seal) -> bool:
    """Whether a spare was found unchanged since the program has started. May block."""
    looks = _looks.get(repository.common_dir)
    return looks is not None and looks.found(seal)

"""The lock on what all worktrees of a repository share: refs, registrations, `info/exclude`.

`git worktree add` and its relatives do not lock against each other: of 24 that ran at the same time, 17
failed. So every change of shared metadata happens under this lock, in every process of every run.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from isolation.errors import RepositoryError
from isolation.files.disk import attempt_in_folder
from isolation.paths import worktrees_lock_path

LOCK_SECONDS = 60.0
_local_locks: dict[Path, threading.Lock] = {}


@contextmanager
def metadata_lock(common_dir: Path) -> Iterator[None]:
    """Hold the right to change shared git metadata, against other threads and other processes.

    Blocks, for at most a minute; not re-entrant.
    """
    path = worktrees_lock_path(common_dir)
    deadline = time.monotonic() + LOCK_SECONDS
    # Threads queue up here first, so that one at a time competes with other processes: many threads that poll
    # the file would starve one another.
    local = _local_locks.setdefault(path, threading.Lock())
    with ExitStack() as held:
        if not local.acquire(timeout=LOCK_SECONDS):
            raise _lock_timeout(path)
        held.callback(local.release)
        while (lock := attempt_in_folder(path)) is None:
            if time.monotonic() > deadline:
                raise _lock_timeout(path)
            time.sleep(0.003)  # held for milliseconds as a rule; a blocking flock could not time out
        held.callback(lock.release)
        yield


def _lock_timeout(path: Path) -> RepositoryError:
    return RepositoryError(
        f"waited {LOCK_SECONDS:.0f} s for {path}",
        hint="another autopilot-multi is changing worktrees of this repository; is it suspended?",
    )

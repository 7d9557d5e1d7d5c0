"""The lease: which run coordinates this repository; a lock decides, a file names the holder.

Invariants:

- The lock alone decides. The file beside it only names the holder, and never means "active" by itself. So the
  lease of a killed holder is taken over immediately, whatever process has its pid now, and no process is ever
  signaled.
- The file is written and removed only by the process that holds the lock.

Standard library only, since `status` reads it.
"""

import json
import os
import shlex
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Self

from msgspec import structs

from isolation.errors import IsolationError, LeaseHeldError
from isolation.files.disk import LockFile, replace_file
from isolation.model import Holder
from isolation.paths import autopilot_dir, lease_lock_path, lease_path, main_checkout

# `status` holds a shared lock for an instant, and a new holder writes its name only after locking.
_PATIENCE = 1.0
_START_TICKS = 19  # field 22 of /proc/<pid>/stat, counted after the command's closing bracket


class Lease:
    """The held right to coordinate; `notes` say what an earlier holder left behind.

    `changed` is when the program's folder had last changed before this, in nanoseconds: every other holder
    since then has changed it.
    """

    def __init__(
        self, *, common_dir: Path, lock: LockFile, holder: Holder, notes: tuple[str, ...], changed: int
    ) -> None:
        self._common_dir = common_dir
        self._lock: LockFile | None = lock
        self.holder = holder
        self.notes = notes
        self.changed = changed

    def release(self) -> None:
        """Release the lease; harmless if repeated, or called on a forked child's copy."""
        lock, self._lock = self._lock, None
        if lock is not None and self.holder.pid == os.getpid():
            # The file first: after the lock it could already be the next holder's.
            lease_path(self._common_dir).unlink(missing_ok=True)
            lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire(common_dir: Path, run_id: str, *, home: Path | None = None) -> Lease:
    """Take the lease for a run; raises `LeaseHeldError`, which names the holder, if another run has it.

    `home` is the repository of the run, if that is another one.
    """
    _make_private(common_dir)
    deadline = time.monotonic() + _PATIENCE
    while (lock := LockFile.attempt(lease_lock_path(common_dir))) is None:
        holder = read_holder(common_dir)
        # Without a running holder the lock may be a `status` that looks, or a holder that has not written
        # its name yet; both take an instant.
        if (holder is not None and _is_running(holder)) or time.monotonic() > deadline:
            raise _held(holder, common_dir)
        time.sleep(0.02)
    try:
        changed = autopilot_dir(common_dir).stat().st_mtime_ns
        # Under the lock, so that what is found there can only be a dead holder's.
        notes = _settle(common_dir)
        holder = Holder(
            boot_id=boot_id(),
            pid=os.getpid(),
            start_ticks=_start_ticks(os.getpid()),
            host=os.uname().nodename,
            run_id=run_id,
            since=time.time(),
            home=str(home) if home else "",
        )
        replace_file(lease_path(common_dir), _to_json(holder))
    except BaseException:
        lock.release()
        raise
    return Lease(common_dir=common_dir, lock=lock, holder=holder, notes=notes, changed=changed)


def _make_private(common_dir: Path) -> None:
    """Make the program's folder, where prompts, logs and requests are for its owner alone.

    Git of other users may find objects there, as the repository's alternates say. Who wants to show more to
    others changes the mode; it stays.
    """
    autopilot_dir(common_dir).mkdir(exist_ok=True)
    (autopilot_dir(common_dir) / "runs").mkdir(mode=0o700, exist_ok=True)


def read_holder(common_dir: Path) -> Holder | None:
    """Return the holder as last written; None without one, or if the file cannot be parsed."""
    try:
        return _from_json(lease_path(common_dir).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def holder_is_alive(common_dir: Path) -> bool:
    """Return whether a coordinator holds the lease now; creates nothing and disturbs no process."""
    try:
        lock = LockFile.attempt(lease_lock_path(common_dir), shared=True, create=False)
    except FileNotFoundError:
        return False
    if lock is None:
        return True
    lock.release()
    return False


def _settle(common_dir: Path) -> tuple[str, ...]:
    """Clear what an earlier holder left, under the lock; return notes about it."""
    path = lease_path(common_dir)
    try:
        before = _from_json(path.read_bytes())
    except FileNotFoundError:
        return ()
    except ValueError:
        aside = _free_name(path)
        path.rename(aside)
        return (f"the lease file could not be read and was renamed to {aside}",)
    return (f"took over from run {before.run_id} (pid {before.pid} on {before.host}), which was killed",)


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    return aside


def _held(holder: Holder | None, common_dir: Path) -> IsolationError:
    there = f" -C {shlex.quote(holder.home)}" if holder and holder.home else ""
    hint = f"`autopilot-multi status{there}` shows what it is doing, `autopilot-multi stop{there}` ends it"
    if holder is None:
        return LeaseHeldError(
            "another run is active in this repository (which one is unknown: its lease file cannot be read)",
            hint=hint,
        )
    since = datetime.fromtimestamp(holder.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    of = f" of {holder.home}" if holder.home else ""
    where = main_checkout(common_dir) or common_dir
    return LeaseHeldError(
        f"another run {holder.run_id}{of} (pid {holder.pid} on {holder.host}) has been active here "
        f"since {since}",
        hint=f"{hint}; the repository is {where}" if holder.home else hint,
    )


def _is_running(holder: Holder) -> bool:
    return holder.boot_id == boot_id() and holder.start_ticks == _start_ticks(holder.pid)


@cache
def boot_id() -> str:
    """Return the id of this boot of the machine, which no process outlives; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _start_ticks(pid: int) -> int:
    """Return when a process started, in ticks since boot: with the boot id it identifies a reused pid."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[_START_TICKS])


def _to_json(holder: Holder) -> bytes:
    values = structs.asdict(holder)
    if not holder.home:
        del values["home"]  # an earlier version does not know it
    return json.dumps(values, indent=2).encode() + b"\n"


def _from_json(data: bytes) -> Holder:
    """Parse a holder; anything else raises ValueError."""
    try:
        values: Any = json.loads(data)
        holder = Holder(**values)
        datetime.fromtimestamp(holder.since, UTC)
    except (TypeError, OverflowError, OSError, RecursionError) as error:
        raise ValueError(str(error)) from error
    wanted = {"boot_id": str, "pid": int, "start_ticks": int, "host": str, "run_id": str, "home": str}
    if any(type(getattr(holder, name)) is not kind for name, kind in wanted.items()):
        raise ValueError("a field has the wrong type")
    return holder

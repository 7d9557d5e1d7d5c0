"""Processes of sessions whose coordinator, server and keeper were all killed: found by their environment.

Only processes without a terminal count, so that a shell in which the user repeats a session is left alone,
and never this process or one above it.
"""

import os
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import Struct

from isolation.kernel.process_tree import load_stat

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""

_MARK = b"AUTOPILOT_RUN_ID="
_TERMINAL = 4
_POLL = 0.02


class LeftProcess(Struct, frozen=True, kw_only=True):
    """A process of an earlier run; `started` distinguishes it from a later one with its pid."""

    pid: int
    started: int
    run_id: str
    command: str


def left_processes(run_ids: Collection[str]) -> tuple[LeftProcess, ...]:
    """Return the living processes that sessions of these runs have left. Nothing where there is no procfs."""
    above = _above()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            entries = (folder / "environ").read_bytes().split(b"\0") if pid not in above else []
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        stat = load_stat(pid)
        marks = [entry.removeprefix(_MARK).decode() for entry in entries if entry.startswith(_MARK)]
        if stat is None or not stat.alive or fields[_TERMINAL] != b"0" or not marks:
            continue
        if marks[0] in run_ids:
            found.append(LeftProcess(pid=pid, started=stat.started, run_id=marks[0], command=words))
    return tuple(sorted(found, key=lambda process: process.pid))


def end(processes: Sequence[LeftProcess]) -> tuple[LeftProcess, ...]:
    """End processes by SIGTERM and, after a grace, SIGKILL; return those that still live. Blocking."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in filter(_lives, processes):
            try:
                os.kill(process.pid, number)
            except (ProcessLookupError, PermissionError):
                continue
        deadline = time.monotonic() + GRACE
        while any(map(_lives, processes)) and time.monotonic() < deadline:
            time.sleep(_POLL)
    return tuple(filter(_lives, processes))


def _lives(process: LeftProcess) -> bool:
    stat = load_stat(process.pid)
    return stat is not None and stat.alive and stat.started == process.started


def _above() -> set[int]:
    """Return this process and all above it."""
    pid, found = os.getpid(), set[int]()
    while pid and pid not in found:
        found.add(pid)
        stat = load_stat(pid)
        pid = stat.parent if stat else 0
    return found

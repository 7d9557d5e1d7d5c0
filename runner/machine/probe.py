"""What the machine has right now, as one sample; a signal that cannot be read is None, never a guess.

Where the host and the control groups above this process disagree, the worse value counts: a container's
limit is a limit, and a stall is a stall. The disk is the one that holds the given path, which need
not exist yet.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from isolation.kernel.processors import available
from runner.core.limits.agent_sessions import AgentProgram
from runner.core.schedule.resources import ResourceSample
from runner.machine.control_groups import ControlGroups, load_control_groups, stall_of
from runner.machine.peers import find_peers

PROC = Path("/proc")
PEERS_SECONDS = 5.0
"""Listing every process costs more than all other signals, and other sessions come and go slowly."""

_Number = TypeVar("_Number", int, float)
_MOST_PERCENT = 100


class Probe:
    """Takes samples of this machine, and keeps its last count of other agent sessions for a while."""

    def __init__(
        self,
        programs: Sequence[AgentProgram],
        *,
        proc: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc = proc
        self._programs = programs
        self._clock = clock
        self._peers: int | None = None
        self._peers_until = -float("inf")

    def __call__(self, path: Path) -> ResourceSample:
        """Take a sample; `path` lies on the disk whose free space counts."""
        groups = load_control_groups(self._proc)
        disk_free, inodes_free = _disk(path)
        memory, swap = _host_memory(self._proc)
        return ResourceSample(
            memory_available=_least((memory, groups.load_memory_left())),
            swap_used=_most((swap, groups.load_swap_used())),
            peers=self._count_peers(),
            pressure_free_percent=_pressure_free_percent(),
            disk_free=disk_free,
            inodes_free=inodes_free,
            memory_stall=self._stall(groups, "memory"),
            cpu_stall=self._stall(groups, "cpu"),
            io_stall=self._stall(groups, "io"),
            load_per_cpu=_load_per_cpu(groups),
        )

    def _count_peers(self) -> int | None:
        now = self._clock()
        if now >= self._peers_until:
            found = find_peers(self._proc, self._programs)
            self._peers = None if found is None else len(found)
            self._peers_until = now + PEERS_SECONDS
        return self._peers

    def _stall(self, groups: ControlGroups, resource: str) -> float | None:
        return _most((stall_of(self._proc / "pressure" / resource), groups.load_stall(resource)))


def sample(path: Path, programs: Sequence[AgentProgram]) -> ResourceSample:
    """Take a single sample; `path` lies on the disk whose free space counts."""
    return Probe(programs)(path)


def _pressure_free_percent() -> float | None:
    """Return how much memory is free of pressure; only macOS reports it."""
    return ask_macos() if sys.platform == "darwin" else None


def ask_macos() -> float | None:
    """Ask the macOS kernel for its percentage of free memory."""
    import ctypes

    level, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    try:
        ask = ctypes.CDLL(None).sysctlbyname
        failed = ask(
            b"kern.memorystatus_level", ctypes.byref(level), ctypes.byref(size), None, ctypes.c_size_t(0)
        )
    except (OSError, AttributeError):
        return None
    return float(level.value) if not failed and 0 <= level.value <= _MOST_PERCENT else None


def _host_memory(proc: Path) -> tuple[int | None, int | None]:
    """Return available memory and used swap; from psutil where there is no procfs, since it loads slowly."""
    known = _meminfo(proc)
    if "MemAvailable" in known:
        swap = known.get("SwapTotal", 0) - known.get("SwapFree", 0)
        return min(known["MemAvailable"], known.get("MemTotal", known["MemAvailable"])), max(swap, 0)
    return _asked_of_psutil(_psutil_memory), _asked_of_psutil(_psutil_swap)


def _meminfo(proc: Path) -> dict[str, int]:
    """Read the numbers of `meminfo` in bytes; empty if it cannot be read."""
    try:
        lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
        rows = [line.split() for line in lines if line.endswith(" kB")]
        return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}
    except (OSError, ValueError, IndexError):
        return {}


def _asked_of_psutil(ask: Callable[[], int]) -> int | None:
    try:
        return ask()
    except Exception:  # noqa: BLE001  whatever goes wrong in psutil, the signal is unknown
        return None


def _psutil_memory() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def _psutil_swap() -> int:
    import psutil

    with warnings.catch_warnings():
        # psutil warns about missing counters that are not used here.
        warnings.simplefilter("ignore")
        return int(psutil.swap_memory().used)


def _disk(path: Path) -> tuple[int | None, int | None]:
    """Return free bytes and free inodes for a path, or for its nearest parent that exists."""
    for folder in (path, *path.parents):
        try:
            found = os.statvfs(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            break
        # A file system without a fixed number of inodes, such as btrfs, reports none at all.
        return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None
    return None, None


def _load_per_cpu(groups: ControlGroups) -> float | None:
    """Divide the load of the last minute by the processors that this process may use."""
    processors = _least((_processors(), groups.load_processors()))
    try:
        return os.getloadavg()[0] / processors if processors else None
    except OSError:
        return None


def _processors() -> float | None:
    return len(available()) or os.cpu_count()


def _least(values: Iterable[_Number | None]) -> _Number | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: Iterable[_Number | None]) -> _Number | None:
    return max((value for value in values if value is not None), default=None)

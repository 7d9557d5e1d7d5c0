"""What the machine has right now, as one sample; a signal that cannot be read is None, never a guess.

Memory is the least of what the host has available and what each control group above this process
still allows, so that a container's limit counts. Page cache that a group would give back at once
(`inactive_file`) counts as free, as it does for the host.
"""

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from runner.core.model import ResourceSample

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_CGROUP = Path("/proc/self/cgroup")


def sample(path: Path, *, cgroup_root: Path = CGROUP_ROOT, proc_cgroup: Path = PROC_CGROUP) -> ResourceSample:
    """Take a sample; `path` lies on the disk whose free space counts."""
    known = [
        value for value in (_host_memory(), *_group_memory(cgroup_root, proc_cgroup)) if value is not None
    ]
    return ResourceSample(memory_available=min(known, default=None), swap_used=_swap(), disk_free=_disk(path))


def _host_memory() -> int | None:
    try:
        import psutil

        return int(psutil.virtual_memory().available)
    except Exception:  # noqa: BLE001  whatever psutil meets on a strange machine, the signal is unknown
        return None


def _swap() -> int | None:
    try:
        import psutil

        with warnings.catch_warnings():
            # psutil warns when counters that nobody here asks for are missing.
            warnings.simplefilter("ignore")
            return int(psutil.swap_memory().used)
    except Exception:  # noqa: BLE001  as above
        return None


def _disk(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def _group_memory(root: Path, proc_cgroup: Path) -> Iterator[int | None]:
    """Give what every control group above this process still allows."""
    try:
        lines = proc_cgroup.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if number == "0" and not controllers:
            for group in _ancestors(root, name):
                yield _left(group, ("memory.max", "memory.high"), "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            for group in _ancestors(root / "memory", name):
                limits, usage = ("memory.limit_in_bytes",), "memory.usage_in_bytes"
                yield _left(group, limits, usage, "total_inactive_file")


def _ancestors(root: Path, name: str) -> Iterator[Path]:
    """Give the group and all above it; a name from another namespace leaves only the root."""
    parts = PurePosixPath(name.lstrip("/")).parts
    if ".." in parts:
        parts = ()
    for length in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:length])


def _left(group: Path, limits: tuple[str, ...], usage: str, cache: str) -> int | None:
    """Give a group's limit less what it cannot give back; None when it has no limit."""
    known = [limit for name in limits if (limit := _number(group / name)) is not None]
    used = _number(group / usage)
    if not known or used is None:
        return None
    return max(0, min(known) - max(0, used - _cached(group / "memory.stat", cache)))


def _number(path: Path) -> int | None:
    """Read one number; the word `max` is no limit."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _cached(path: Path, key: str) -> int:
    try:
        fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines())
        return int(fields.get(key, 0))
    except (OSError, ValueError):
        return 0

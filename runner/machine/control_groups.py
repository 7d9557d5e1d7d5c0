"""What the control groups above this process allow it: memory, swap, processors, and how they stall.

Both versions count, even side by side. The location of their files is read from `/proc/self/mountinfo`,
never assumed: in a container the mount often begins at the container's own group. A limit anywhere
above the process applies to it. What is missing, unlimited or cannot be understood restricts nothing.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from isolation.patterns import pattern

_UNLIMITED = 1 << 60
"""Version 1 has no word for it, only a number beyond any machine."""
_STALL = pattern(rb"^some avg10=(\d{1,3}(?:\.\d{1,9})?)\s", re.MULTILINE)
_ESCAPE = pattern(r"\\([0-7]{3})")
_MOST_DIGITS = 20
_MOST_PERCENT = 100


class ControlGroups(Struct, frozen=True, kw_only=True):
    """The folders of the groups that hold this process, innermost first: version 2, and two of version 1."""

    unified: tuple[Path, ...] = ()
    memory: tuple[Path, ...] = ()
    cpu: tuple[Path, ...] = ()

    def load_memory_left(self) -> int | None:
        """Return the least memory that any group still allows; None without a limit."""
        left = [_left(group, ("memory.max", "memory.high"), "memory.current") for group in self.unified]
        left += [_left(group, ("memory.limit_in_bytes",), "memory.usage_in_bytes") for group in self.memory]
        return min((value for value in left if value is not None), default=None)

    def load_swap_used(self) -> int | None:
        """Return the most swap in use in any group that limits it; None without a limit."""
        used = [
            _number(group / "memory.swap.current")
            for group in self.unified
            if _limit(group / "memory.swap.max") is not None
        ]
        used += [
            _stat(group, "total_swap")
            for group in self.memory
            if _limit(group / "memory.memsw.limit_in_bytes") is not None
        ]
        return max((value for value in used if value is not None), default=None)

    def load_processors(self) -> float | None:
        """Return the least processor time per second that any group allows; None without a quota."""
        quotas = [_read(group / "cpu.max").split() for group in self.unified]
        quotas += [
            [_read(group / "cpu.cfs_quota_us").strip(), _read(group / "cpu.cfs_period_us").strip()]
            for group in self.cpu
        ]
        return min((share for quota in quotas if (share := _share(quota)) is not None), default=None)

    def load_stall(self, resource: str) -> float | None:
        """Return the worst share of time, in percent, in which a group waited for a resource."""
        stalls = [stall_of(group / f"{resource}.pressure") for group in self.unified]
        return max((value for value in stalls if value is not None), default=None)


def load_control_groups(proc: Path) -> ControlGroups:
    """Find the groups of this process in every hierarchy that is mounted."""
    names = _own_names(proc)
    found: dict[str, dict[Path, None]] = {"": {}, "memory": {}, "cpu": {}}
    for line in _text(proc / "self/mountinfo").splitlines():
        location, _, kind = line.partition(" - cgroup")
        fields, options = location.split(), kind.rpartition(" ")[2].split(",")
        if not kind or len(fields) < 5:  # noqa: PLR2004  id, parent, device, root and mount point
            continue
        root, mount = (_unescaped(field) for field in fields[3:5])
        for controller in [""] if kind.startswith("2 ") else options:
            if controller in found and controller in names:
                found[controller].update(dict.fromkeys(_ancestors(Path(mount), root, names[controller])))
    return ControlGroups(unified=tuple(found[""]), memory=tuple(found["memory"]), cpu=tuple(found["cpu"]))


def stall_of(path: Path) -> float | None:
    """Read a pressure file: the percentage of the last ten seconds in which some task waited."""
    found = _STALL.search(_read(path))
    percent = float(found[1]) if found else None
    return percent if percent is not None and percent <= _MOST_PERCENT else None


def _own_names(proc: Path) -> dict[str, str]:
    """Map each controller of version 1, and the empty name of version 2, to this process's group."""
    names = {}
    for line in _text(proc / "self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, separator, name = rest.partition(":")
        if separator:
            names.update(dict.fromkeys(controllers.split(","), name))
    return names


def _ancestors(mount: Path, root: str, name: str) -> Iterator[Path]:
    """Yield the group and all groups above it that this mount shows.

    A name or a root with `..` is outside of our namespace. The mount itself is then all that can be
    known; it is the container's own group, or one above it.
    """
    group, top = PurePosixPath(name), PurePosixPath(root)
    if ".." in group.parts or ".." in top.parts:
        yield mount
    elif group.is_relative_to(top):
        parts = group.relative_to(top).parts
        for length in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:length])


def _left(group: Path, limits: tuple[str, ...], usage: str) -> int | None:
    """Return a group's limit minus what it cannot release; None when it has no limit.

    Page cache that was not used lately is released as soon as memory is needed, so it counts as free.
    """
    known = [limit for name in limits if (limit := _limit(group / name)) is not None]
    used = _number(group / usage)
    if not known or used is None:
        return None
    # Version 1 keeps the figure for the whole tree under another name.
    cache = _stat(group, "total_inactive_file") or _stat(group, "inactive_file") or 0
    return max(0, min(known) - max(0, used - cache))


def _share(quota: list[bytes]) -> float | None:
    match quota:
        case [time, period] if time.isdigit() and period.isdigit() and len(time + period) <= _MOST_DIGITS:
            return int(time) / int(period) if int(time) and int(period) else None
        case _:
            return None


def _limit(path: Path) -> int | None:
    """Read a limit; the word `max` is none."""
    number = _number(path)
    return None if number is None or number >= _UNLIMITED else number


def _number(path: Path) -> int | None:
    return _whole(_read(path))


def _stat(group: Path, key: str) -> int | None:
    """Look one figure up in a group's `memory.stat`."""
    for line in _read(group / "memory.stat").splitlines():
        name, _, value = line.partition(b" ")
        if name == key.encode():
            return _whole(value)
    return None


def _whole(text: bytes) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def _text(path: Path) -> str:
    return _read(path).decode(errors="surrogateescape")


def _unescaped(field: str) -> str:
    """Undo the kernel's escapes for blanks and the like in a path."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError):  # a path made from nonsense may hold a NUL
        return b""

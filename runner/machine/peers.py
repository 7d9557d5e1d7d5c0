"""Which other agent sessions are running on this machine.

Everything below this process is ours. A keeper adopts the orphans of its session, so nothing that a
story started can leave that tree. Command lines are read only of processes that could be a peer: not
of kernel threads, dead processes or our own.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from isolation.kernel.process_tree import KEEPER_NAME
from runner.core.limits.agent_sessions import AgentProgram, agents_among, below, sessions

_KERNEL_THREAD = 0x00200000
_DEAD = (b"Z", b"X")
_STAT_BYTES, _COMMAND_LINE_BYTES = 1024, 4096
"""Enough for the numbers that matter, and for a program with its script."""


class _ProcessTable(Struct, frozen=True, kw_only=True):
    """The processes of the machine: parents and names of all, command lines on demand."""

    parents: Mapping[int, int]
    names: Mapping[int, str]
    argv: Callable[[int], Sequence[str]]


def find_peers(proc: Path, programs: Sequence[AgentProgram]) -> set[int] | None:
    """Return the first process of each other agent session; None where processes cannot be listed."""
    table = _of_procfs(str(proc)) or _of_psutil()
    if table is None:
        return None
    others = table.names.keys() - below(os.getpid(), table.parents)
    keepers = {pid for pid in others if table.names[pid] == KEEPER_NAME}
    agents = agents_among({pid: table.argv(pid) for pid in others}, programs)
    return sessions(agents, keepers, table.parents)


def _of_procfs(proc: str) -> _ProcessTable | None:
    """Read procfs by hand, which takes a third of the time that psutil does."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    try:
        pids = [name for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208  names are enough
    except OSError:
        return None
    for pid in pids:
        # A program's name may contain parentheses, so the last one ends it.
        head, closed, tail = _read(f"{proc}/{pid}/stat", _STAT_BYTES).rpartition(b")")
        fields = tail.split(maxsplit=7)
        try:
            number, parent, flags = int(pid), int(fields[1]), int(fields[6])
        except (IndexError, ValueError):
            continue  # it has ended
        parents[number] = parent
        if closed and fields[0] not in _DEAD and not flags & _KERNEL_THREAD:
            names[number] = os.fsdecode(head.partition(b"(")[2])

    def argv(pid: int) -> list[str]:
        return os.fsdecode(_read(f"{proc}/{pid}/cmdline", _COMMAND_LINE_BYTES)).split("\0")

    return _ProcessTable(parents=parents, names=names, argv=argv) if parents else None


def _read(path: str, size: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def _of_psutil() -> _ProcessTable | None:
    try:
        import psutil

        seen = {process.pid: process.info for process in psutil.process_iter(["ppid", "name", "cmdline"])}
    except Exception:  # noqa: BLE001  whatever goes wrong in psutil, the signal is unknown
        return None
    return _ProcessTable(
        parents={pid: info["ppid"] or 0 for pid, info in seen.items()},
        names={pid: info["name"] or "" for pid, info in seen.items()},
        argv=lambda pid: seen[pid]["cmdline"] or (),
    )

"""What the kernel knows of a process tree: which processes are below one, what they use, how to end them.

Standard library only, and little of it: the fork server loads this file under `-I -S` before
anything else runs.

Invariants:

- With a child subreaper at the root, a tree that has a member has a direct child of the root, so
  "no children" (`ECHILD`) means that the tree is empty. No list of pids proves as much.
- A pid is signaled only while it cannot have been reused: direct children are reaped by us alone; all others
  are pinned by a pidfd, where the kernel has them, and their parent is checked.
"""

# Without pathlib, which would double the time that the fork server needs to start.
# ruff: noqa: PTH110, PTH208

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

SUBREAPER = "subreaper"
GROUP = "group"

KEEPER_NAME = "apm-keeper"
"""What `ps` shows for a keeper; one run recognizes the sessions of another by it."""

KILL_LIMIT = 10.0
"""A process that lives this long after SIGKILL sits in the kernel; it is reported, not awaited."""
DENIED_LIMIT = 1.0
"""How long processes that may not be signaled (sudo) have to end with the rest of their tree."""

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_SPIN_ROUNDS = 20
_FORK_TOUCHES = 1 << 18
"""What a forked process may have written to until it runs its program, in bytes."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def _load_prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return prctl


_prctl = _load_prctl()


def kill_level() -> str:
    """Return how reliably a tree can be ended here: `subreaper` (all of it), or `group` (best effort)."""
    if _prctl is None or load_stat(os.getpid()) is None:
        return GROUP
    import ctypes

    answer = ctypes.c_int()
    return SUBREAPER if _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0) == 0 else GROUP


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it, if the kernel supports that."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def leave_orphans() -> None:
    """Let orphans below this process go to the next subreaper above it again."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def set_name(name: str) -> None:
    """Name this process for `ps` and `top`."""
    if _prctl is not None:
        _prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


class Stat:
    """One process, from `/proc/<pid>/stat`; `cpu_seconds_below` counts its dead, reaped children."""

    __slots__ = (
        "cpu_seconds",
        "cpu_seconds_below",
        "group",
        "image",
        "parent",
        "rss_bytes",
        "started",
        "state",
    )

    def __init__(self, fields: list[bytes]) -> None:
        self.state = fields[0]
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS
        self.cpu_seconds_below = (int(fields[13]) + int(fields[14])) / _TICKS
        self.started = int(fields[19])
        self.rss_bytes = int(fields[21]) * _PAGE
        # The size of its memory and where its stack begins: a fork keeps both until it runs a program.
        self.image = (fields[20], fields[25])

    @property
    def alive(self) -> bool:
        """Whether it is a process, not the remains of one that ended."""
        return self.state not in {b"Z", b"X"}


def load_stat(pid: int) -> Stat | None:
    """Read a process's state; None if it is gone, or without procfs."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name, in parentheses, may itself hold spaces and parentheses.
    return Stat(text[text.rindex(b")") + 2 :].split())


def resident(stats: dict[int, Stat]) -> int:
    """Return the memory of processes in bytes; of one that has only just been forked, it is its parent's.

    Every program that is started is such a process for a moment: it would double the memory of a large one.
    """
    total = 0
    for stat in stats.values():
        parent = stats.get(stat.parent)
        if (
            parent is None
            or stat.image != parent.image
            or abs(stat.rss_bytes - parent.rss_bytes) > _FORK_TOUCHES
        ):
            total += stat.rss_bytes
    return total


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, 65536)
        while more := os.read(descriptor, 65536):
            text += more
        return text
    finally:
        os.close(descriptor)


def load_children(pid: int) -> list[int]:
    """Return the direct children of a process; one that ends meanwhile may hide another."""
    if not _CHILDREN_FILES:
        return [child for child, (parent, _) in load_table().items() if parent == pid]
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        pass  # it, or one of its threads, ended: its children have moved up
    return found


def load_table() -> dict[int, tuple[int, int]]:
    """Map every process of the machine to its parent and its group."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        pids = []
    if not pids:
        return _load_table_of_ps()
    stats = ((pid, load_stat(pid)) for pid in pids)
    return {pid: (stat.parent, stat.group) for pid, stat in stats if stat is not None and stat.alive}


def _load_table_of_ps() -> dict[int, tuple[int, int]]:
    import subprocess

    command = ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  a constant
    rows = (line.split() for line in done.stdout.splitlines())
    return {int(row[0]): (int(row[1]), int(row[2])) for row in rows if not row[3].startswith("Z")}


_CHILDREN_FILES = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


class Tree:
    """Everything below one process, except for the children in `spared`.

    At level `group` orphans are not adopted: those in a process group that was once seen below the
    root still count, those in a group of their own are lost.
    """

    def __init__(self, root: int, *, level: str = SUBREAPER) -> None:
        self.root = root
        self.spared: set[int] = set()
        self.groups: set[int] = set()
        self._by_group = level == GROUP

    def children(self) -> list[int]:
        """Return those that only the root can reap; at level `group`, all."""
        if self._by_group:
            return self._members_by_group()
        return [pid for pid in load_children(self.root) if pid not in self.spared]

    def members(self) -> list[int]:
        """Return all members, parents before their children."""
        if self._by_group:
            return self._members_by_group()
        found = dict.fromkeys(self.children())
        waiting = list(found)
        for pid in waiting:
            fresh = [child for child in load_children(pid) if child not in found]
            found.update(dict.fromkeys(fresh))
            waiting += fresh
        return waiting

    def strays(self) -> list[int]:
        """Return what is left when the root has no more children: nothing, if orphans are adopted."""
        return self._members_by_group() if self._by_group else []

    def _members_by_group(self) -> list[int]:
        table = load_table()
        waiting = [
            pid for pid, (parent, group) in table.items() if parent == self.root or group in self.groups
        ]
        found = dict.fromkeys((*self.spared, *waiting))
        waiting = [pid for pid in waiting if pid not in self.spared]
        for pid in waiting:
            fresh = [child for child, (parent, _) in table.items() if parent == pid and child not in found]
            found.update(dict.fromkeys(fresh))
            waiting += fresh
        own = os.getpgid(self.root)
        self.groups |= {table[pid][1] for pid in waiting} - {own}
        return [pid for pid in waiting if pid != self.root]

    def send(self, signals: Iterable[int], pids: list[int]) -> set[int]:
        """Signal members; return those that may not be signaled."""
        family = {self.root, *pids}
        return {pid for pid in pids if not _send(pid, signals, family)}


def _send(pid: int, signals: Iterable[int], family: set[int]) -> bool:
    """Signal a process whose parent is in the family; false if that is not permitted."""
    try:
        handle = os.pidfd_open(pid) if sys.platform == "linux" else None
    except ProcessLookupError:
        return True
    except OSError:
        handle = None  # an old kernel, or a container that forbids it
    try:
        stat = load_stat(pid) if handle is not None else None
        if stat is not None and stat.parent not in family:
            return True  # the pid was reused by a stranger before the handle was opened
        for number in signals:
            os.kill(pid, number) if handle is None else signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def kill_all(tree: Tree, reap: Callable[[], bool], *, denied_limit: float = DENIED_LIMIT) -> list[int]:
    """SIGKILL a tree until `reap` finds nothing more; return what could not be killed.

    To win against a tree that forks faster than it can be listed, each round kills direct children only:
    their orphans become children within that round. Deeper ones follow when no new child appears.
    """
    begun = time.monotonic()
    seen: set[int] = set()
    idle = 0
    while reap():
        children = tree.children()
        denied = {pid for pid in children if not _kill(pid)}
        idle = idle + 1 if seen.issuperset(children) else 0
        seen.update(children)
        if not idle:
            continue
        members = tree.members()
        denied |= tree.send((signal.SIGKILL,), members)
        left = [pid for pid in members if (stat := load_stat(pid)) is None or stat.alive]
        waited = time.monotonic() - begun
        if left and waited > (denied_limit if denied.issuperset(left) else KILL_LIMIT):
            return left
        if idle > _SPIN_ROUNDS:
            time.sleep(0.001)
    return []


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True

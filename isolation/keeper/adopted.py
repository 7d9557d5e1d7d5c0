"""What the coordinator inherits when the fork server and a keeper are killed at once, and how it ends that.

Orphans go to the nearest subreaper above them: to their keeper, else to the server, and with this to the
coordinator. So a session that kills both of them gains nothing.

Invariants:

- Our own children are never taken for orphans: they are in our login session (`setsid` only makes new ones),
  or they are named as spared, like the server, the keepers that it left, and what we had before.
- A process closes its sockets before the kernel gives its children to another: so the dead are awaited, and
  only then their orphans are looked for.
- Only the pids of adopted processes are reaped here, so no other exit code is lost.
"""

import os
import time
from collections.abc import Collection

from isolation.kernel.process_tree import (
    SUBREAPER,
    Tree,
    adopt_orphans,
    kill_all,
    kill_level,
    leave_orphans,
    load_children,
    load_stat,
)

DYING_LIMIT = 2.0
"""How many seconds a process may take to die whose sockets are closed already."""

_POLL = 0.001


class AdoptedOrphans:
    """The orphans of this process, between `adopt` and `release`."""

    def __init__(self) -> None:
        self._available = kill_level() == SUBREAPER
        self._before = set(load_children(os.getpid()))

    def adopt(self) -> None:
        """Become their parent, if the kernel supports that."""
        if self._available:
            adopt_orphans()

    def release(self) -> None:
        """Adopt no more: what others start in this process later is no concern of ours."""
        if self._available:
            leave_orphans()

    def end(self, dying: Collection[int], spared: Collection[int]) -> list[int]:
        """Kill the orphans that `dying` processes leave, with all below; return what could not be killed.

        Those in `spared` are ours. Blocking.
        """
        if not self._available:
            return []
        deadline = time.monotonic() + DYING_LIMIT
        while any(map(_lives, dying)) and time.monotonic() < deadline:
            time.sleep(_POLL)
        tree = _OrphanTree(os.getpid())
        tree.spared = {*self._before, *spared}

        def reap() -> bool:
            for pid in tree.children():
                _reap(pid)
            return bool(tree.children())

        return kill_all(tree, reap)


class _OrphanTree(Tree):
    """The children of this process that began in another login session, with all below."""

    def children(self) -> list[int]:
        """Return the orphans."""
        own = os.getsid(0)
        return [pid for pid in super().children() if _login_session(pid) not in {own, None}]


def _lives(pid: int) -> bool:
    stat = load_stat(pid) if pid else None
    return stat is not None and stat.alive


def _login_session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return

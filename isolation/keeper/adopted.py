"""What the coordinator inherits when the fork server and a keeper are killed at once, and how it ends that.

Orphans go to the nearest subreaper above them: to their keeper, else to the server, and with this to the
coordinator. So a session that kills both of them gains nothing.

Invariants:

- Our own children are never taken for orphans: they are in our login session (`setsid` only makes new ones),
  or they are named as spared, like the server, the keepers that it left, and what we had before.
- Only the pids of adopted processes are reaped here, so nobody else's exit code is lost.
"""

import os
from collections.abc import Collection

from isolation.kernel.process_tree import SUBREAPER, Tree, adopt_orphans, kill_all, kill_level, load_children


class AdoptedOrphans:
    """The orphans of this process, from the moment it is made."""

    def __init__(self) -> None:
        self._available = kill_level() == SUBREAPER
        self._before = set(load_children(os.getpid()))
        if self._available:
            adopt_orphans()

    def end(self, spared: Collection[int]) -> list[int]:
        """Kill every orphan but the `spared`, with all below; return what could not be killed. Blocking."""
        if not self._available:
            return []
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

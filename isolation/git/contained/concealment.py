"""What git commands on a story's tree do not see: what sessions do not see either.

A filter that a story planted runs in such a command, and what it prints becomes a file of the story. What is
hidden is one value for the whole process, as a process coordinates one run.
"""

import threading
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from isolation.model import Confinement, EnforcementLevel, Means

_FRESH_SECONDS = 5.0
_EMPTY = Confinement(level=EnforcementLevel.DENY, means=Means.MOUNTS)
_lock = threading.Lock()


class _Concealment:
    """How things are hidden, and what was found to hide a moment ago."""

    def __init__(self, around: Callable[[Confinement], Confinement], withheld: frozenset[str]) -> None:
        self._around = around
        self.withheld = withheld
        self._found = _EMPTY
        self._until = 0.0

    def found(self) -> Confinement:
        """Return what is hidden, what is shown all the same, and the network; looked up every few seconds."""
        with _lock:
            if time.monotonic() > self._until:
                self._found = self._around(_EMPTY)
                self._until = time.monotonic() + _FRESH_SECONDS
            return self._found


_current: list[_Concealment] = []


def conceal(around: Callable[[Confinement], Confinement] | None, withheld: frozenset[str]) -> None:
    """Hide from git commands on stories' trees what `around` hides, from now on; None hides nothing."""
    _current[:] = [_Concealment(around, withheld)] if around else []


def concealed(confinement: Confinement, env: Mapping[str, str]) -> tuple[Confinement, Mapping[str, str]]:
    """Return a command's confinement and environment without what is hidden. Blocks."""
    if not _current or confinement.means is not Means.MOUNTS:
        return confinement, env
    found = _current[0].found()
    kept = {name: value for name, value in env.items() if name not in _current[0].withheld}
    return replace(confinement, hidden=found.hidden, shown=found.shown, network=found.network), kept

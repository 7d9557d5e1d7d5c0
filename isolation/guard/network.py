"""Whether this machine can give a session a network of its own; tried out, once per process."""

import os
import tempfile
import threading
from functools import cache
from pathlib import Path

from isolation.keeper.trying import run_trial
from isolation.keeper.wire import confinement_texts
from isolation.model import Confinement, EnforcementLevel, Means, Network

_LEAKS = {
    "outside": "a session still reaches the machine's own loopback",
    "around": "a session can make sockets that no network holds",
}
_trying = threading.Lock()


def network_gap() -> str:
    """Return why a session's network cannot be sealed here; empty if it can."""
    with _trying:
        return _gap()


@cache
def _gap() -> str:
    with tempfile.TemporaryDirectory(prefix="autopilot-network-") as name:
        folder = Path(os.path.realpath(name))
        confinement = Confinement(
            level=EnforcementLevel.DENY,
            means=Means.MOUNTS,
            read_only={folder: "the trial"},
            network=Network(),
        )
        answer = run_trial([name, *confinement_texts(confinement)])
    words = answer.split()
    if "inside" not in words:
        return answer.removeprefix("failed ") or "the trial did not run"
    return "; ".join(why for word, why in _LEAKS.items() if word in words)

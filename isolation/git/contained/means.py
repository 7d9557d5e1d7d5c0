"""By what means this machine can confine a git command; tried out, once per process."""

import os
import tempfile
import threading
from functools import cache
from pathlib import Path

from isolation.errors import KeeperError
from isolation.files.deletion import delete_tree
from isolation.keeper.confined import run_confined
from isolation.model import Confinement, EnforcementLevel, Means

_trying = threading.Lock()


def available_means() -> Means | None:
    """Return the best means that really keeps a command from writing; None if there is none."""
    with _trying:  # a second thread waits for the answer
        return _available()


@cache
def _available() -> Means | None:
    if not hasattr(os, "memfd_create"):
        return None
    return next((means for means in (Means.MOUNTS, Means.LANDLOCK) if _confines(means)), None)


def _confines(means: Means) -> bool:
    """Have a command write where it may and where it may not, and look at what it left."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="autopilot-command-")))
    try:
        (folder / "open").mkdir()
        confinement = Confinement(
            level=EnforcementLevel.DENY,
            means=means,
            read_only={folder: "the trial"},
            writable=(folder / "open",),
        )
        # Quietly: a command that fails on a read-only file system is tried a second time.
        script = ["/bin/sh", "-c", "echo > open/mine; { echo > foreign; } 2> /dev/null; true"]
        run_confined(script, cwd=folder, env={}, confinement=confinement)
        return (folder / "open" / "mine").exists() and not (folder / "foreign").exists()
    except KeeperError:
        return False
    finally:
        delete_tree(folder)

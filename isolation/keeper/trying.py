"""What the kernel of this machine allows, tried by a process of its own.

This module must not import trio: commands that only show something load it, too.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from isolation.keeper import server as keeper_server

_LIMIT = 10.0
_TRIAL = "import sys; sys.path.append(sys.argv[1]); from isolation.keeper.trial import main; main()"


def run_trial(arguments: Sequence[str]) -> str:
    """Run `keeper/trial.py` in a process of its own and return what it printed; blocks for a moment."""
    root = Path(keeper_server.__file__).parent.parent.parent
    command = [sys.executable, "-I", "-S", "-c", _TRIAL, str(root), *arguments]
    try:
        done = subprocess.run(  # noqa: S603  our own module
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"failed {error}"
    return done.stdout

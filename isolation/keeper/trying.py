"""What the kernel of this machine allows, tried by a process of its own.

This module must not import trio: commands that only show something load it, too.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from isolation.keeper import server as keeper_server

_LIMIT = 10.0
_TRIAL = "import sys; sys.path.append(sys.argv[1]); from isolation.keeper.trial import main; main()"


def run_trial(arguments: Sequence[str]) -> str:
    """Run `keeper/trial.py` in a process of its own and return what it printed; blocks for a moment.

    A process with one thread forks, which takes a tenth of what a new interpreter does. One with several must
    not: the child would find locks that no thread releases.
    """
    try:
        if threading.active_count() == 1:
            return _forked(arguments)
        return _started(arguments)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"failed {error}"


def _started(arguments: Sequence[str]) -> str:
    root = Path(keeper_server.__file__).parent.parent.parent
    done = subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-I", "-S", "-c", _TRIAL, str(root), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    return done.stdout


def _forked(arguments: Sequence[str]) -> str:
    from isolation.keeper.trial import attempt  # before the fork, so that the next trial finds it loaded

    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream, number in ((nothing, 0), (writing, 1), (nothing, 2)):
                os.dup2(stream, number)
            attempt(arguments)
        finally:
            os._exit(0)  # nothing of the parent's may run here a second time
    os.close(writing)
    try:
        return _read(reading)
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _read(descriptor: int) -> str:
    """Return what is written until the other end is closed; raises TimeoutError if that takes too long."""
    found, deadline = b"", time.monotonic() + _LIMIT
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            raise TimeoutError("the trial did not end")
        more = os.read(descriptor, 4096)
        if not more:
            return found.decode(errors="replace")
        found += more

"""Commands of the program itself that need no confinement: run to their end, or left to themselves.

This module must not import trio: commands that only show something load it, too.
"""

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from isolation.errors import KeeperError
from isolation.keeper.confined import Ended

_NOWHERE = "/"


def run_unconfined(argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes | None = None) -> Ended:
    """Run a command to its end; raises KeeperError if it cannot be started.

    It starts in the root folder, which is always there, so its arguments must say where it works.
    """
    try:
        done = subprocess.run(  # noqa: S603  the caller's command
            argv,
            cwd=_NOWHERE,
            env=env,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise KeeperError(
            f"cannot start {argv[0]}: {os.strerror(error.errno or 0)}",
            hint="check the limit on open files (ulimit -n)",
        ) from error
    return Ended(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)


def start_detached(argv: Sequence[str], *, cwd: Path, output: int) -> int:
    """Start a command that outlives this process and its terminal; return its pid.

    It is the leader of a session of its own, reads nothing and writes to the file descriptor `output`. Raises
    KeeperError if it cannot be started.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  the caller's command
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        raise KeeperError(
            f"cannot start {argv[0]}: {os.strerror(error.errno or 0)}",
            hint="check the limits on processes and open files (ulimit -u, ulimit -n)",
        ) from error
    # A server lives on: without this its ended children would stay as zombies, which look alive.
    threading.Thread(target=process.wait, name=f"wait for {process.pid}", daemon=True).start()
    return process.pid

"""Commands of the coordinator itself that need no confinement, for callers that block.

This module must not import trio: commands that only show something load it, too.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence

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

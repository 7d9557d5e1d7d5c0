"""A program that has the terminal for a while, such as a pager.

This module must not import trio: commands that only show something load it.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from isolation.errors import KeeperError


def pipe_lines(argv: Sequence[str], lines: Iterable[str], *, env: Mapping[str, str]) -> None:
    """Write lines to the standard input of a program, and wait until the user leaves it.

    Raises KeeperError if it cannot be started. Ctrl-C is for the program: it decides what that means.
    """
    try:
        process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE)  # noqa: S603  the user's own program
    except OSError as error:
        raise KeeperError(
            f"cannot start {argv[0]}: {os.strerror(error.errno or 0)}", hint="use --no-pager"
        ) from error
    # After the start: the program would inherit that a signal is ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # A user may leave before the last line is written; closing the pipe writes what is still buffered.
        with suppress(BrokenPipeError):
            _write(process, lines)
        process.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _write(process: "subprocess.Popen[bytes]", lines: Iterable[str]) -> None:
    assert process.stdin is not None  # noqa: S101  it is a pipe
    with process.stdin as stdin:
        for line in lines:
            stdin.write(line.encode("utf-8", "replace") + b"\n")

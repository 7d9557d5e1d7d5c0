"""Long answers go through a pager, as those of git do."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable

from runner.cli.output import Output

_LESS = "FRX"
"""What less does unless LESS is set: end if all fits on one screen, keep colors, leave the text there."""


def print_lines(lines: Iterable[str], output: Output, *, paged: bool, at_end: bool = False) -> None:
    """Print lines, through a pager where one is wanted and there is one; `at_end` shows the end first."""
    command = _pager(at_end=at_end, output=output) if paged and sys.stdout.isatty() else ()
    if not command:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        return
    from isolation.keeper.foreground import pipe_lines

    environment = {"LESS": _LESS, "LV": "-c", **os.environ}
    pipe_lines(command, lines, env=environment)


def _pager(*, at_end: bool, output: Output) -> tuple[str, ...]:
    """Return the command of the user's pager, else less; empty if there is none, or none is wanted."""
    wanted = os.environ.get("PAGER")
    if wanted is None:
        less = shutil.which("less")
        return () if less is None else (less, "+G") if at_end else (less,)
    try:
        words = shlex.split(wanted)
    except ValueError:
        words = [wanted]
    if not words or words == ["cat"]:
        return ()
    if shutil.which(words[0]) is None:
        output.warn(f"the pager '{wanted}' of PAGER was not found")
        return ()
    return ("sh", "-c", wanted)

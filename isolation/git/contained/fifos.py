"""FIFOs in the place of git's files: a session can make one in the git directory of its worktree.

Git reads these files for every worktree, whichever one a command is about, and would wait for ever. A command
that takes long is freed: what it waits for is renamed, and then ends like an empty file.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ASIDE = ".not-a-file"
"""The end of the name under which a FIFO stays, where the check of its story finds it."""


def set_fifos_aside(common: Path) -> None:
    """Free whatever waits for a FIFO in the git directory of a worktree. Blocks."""
    for path in _fifos(common):
        aside = path.with_name(path.name + ASIDE)
        with suppress(OSError):
            path.rename(aside)
            # Who waits to read gets a writer, and then the end of the file.
            os.close(os.open(aside, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))


def _fifos(common: Path) -> Iterator[Path]:
    for folder in _entries(common / "worktrees"):
        for path in _entries(folder):
            with suppress(OSError):  # a link is followed, as git does
                if stat.S_ISFIFO(path.stat().st_mode) and not path.name.endswith(ASIDE):
                    yield path


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []

"""One real attempt to write where one may not, in a throw-away folder and a process of its own.

Run as a program: `FOLDER TEXT…` takes on the confinement that the texts describe and then does what a
session must not do to `FOLDER/tree`. It prints what went through; whoever started it looks at the
folder and judges. Standard library only.
"""

# Without pathlib: an interpreter is started for this alone, and a run waits for it.
# ruff: noqa: PTH108, PTH118, PTH123

import os
import sys
from collections.abc import Callable

from isolation.keeper_spawn import confine


def main() -> None:
    """Confine this process, try everything, tell the outcome."""
    folder, *texts = map(os.fsencode, sys.argv[2:])
    tree = os.path.join(folder, b"tree")
    try:
        confine(texts)
    except OSError as error:
        os.write(1, f"failed {error.filename}: {error.strerror}".encode())
        return
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: _write(tree + b"/kept"),
        "truncate": lambda: os.truncate(tree + b"/kept", 0),
        "create": lambda: _write(tree + b"/made"),
        "delete": lambda: os.unlink(tree + b"/doomed"),
        "own": lambda: _write(tree + b"/own/mine"),
    }
    os.write(1, " ".join(name for name, act in acts.items() if _works(act)).encode())


def _write(path: bytes) -> None:
    with open(path, "wb") as file:
        file.write(b"trial")


def _works(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return False
    return True

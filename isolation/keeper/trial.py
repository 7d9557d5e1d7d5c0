"""One real attempt to write where one may not, in a throw-away folder and a process of its own.

Run as a program: `FOLDER TEXT…` takes on the confinement that the texts describe and then does what a
session must not do to `FOLDER/tree`. It prints what went through; whoever started it looks at the
folder and judges. With a tree to be witnessed, a shell does it instead, and what is printed is the report
of its witness. Standard library only.
"""

# Without pathlib: an interpreter is started for this alone, and a run waits for it.
# ruff: noqa: PTH108, PTH118, PTH123

import os
import sys
from collections.abc import Callable

from isolation.keeper.spawn import WITNESSED, SpawnError, confine, spawn


def main() -> None:
    """Confine this process, try everything, tell the outcome."""
    folder, *texts = map(os.fsencode, sys.argv[2:])
    tree = os.path.join(folder, b"tree")
    if WITNESSED + tree in texts:
        os.write(1, _witnessed(tree, texts).encode())
        return
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


def _witnessed(tree: bytes, texts: list[bytes]) -> str:
    """Let a shell try, and give the report of its witness; empty when there is none."""
    request = (tree, [b"sh", b"-c", b"echo > made; echo > kept; echo > own/mine"], dict(os.environb), texts)
    try:
        pid, witness = spawn(request, 0, 2)
    except SpawnError:
        return ""
    if witness is None:
        return ""
    os.waitpid(pid, 0)
    return witness.report()


def _write(path: bytes) -> None:
    with open(path, "wb") as file:
        file.write(b"trial")


def _works(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return False
    return True

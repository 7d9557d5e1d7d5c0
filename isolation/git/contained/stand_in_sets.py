"""The folders with the stand-ins of each worktree's sessions; what one that is gone has left is used again.

What stands in for hidden places belongs to one worktree, since only what no other session opens can tell
whether this one has. It is empty and no session can change it, so it serves the next worktree as well. To
make and to delete a file for each place takes longer than most of what prepares a session.

Invariants:

- A folder is with one worktree, or spare: it goes from one to the other by its name alone, which is atomic.
- A folder is spare only when nothing runs in its worktree any more.
"""

import os
from contextlib import suppress
from pathlib import Path

from isolation.files.deletion import delete_tree

_OWN, _SPARE = "own", "spare"
_MOST_SPARE = 16


def own_stand_ins(seal: Path, name: str) -> Path:
    """Return the folder for the stand-ins of a worktree's sessions; it may have some, or not exist. Blocks.

    `seal` is the folder of all stand-ins.
    """
    folder, spare = seal / _OWN / name, f"{seal}/{_SPARE}"
    if os.path.lexists(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):  # there is none yet, or another thread has made this folder
        for left in os.listdir(spare):  # noqa: PTH208  names are enough
            with suppress(FileNotFoundError):  # it has become another worktree's
                os.rename(f"{spare}/{left}", folder)  # noqa: PTH104  text
                break
    return folder


def release_stand_ins(seal: Path | str, name: str) -> None:
    """Keep the stand-ins of a worktree for another one, or delete them. Blocks.

    Nothing may be running in the worktree.
    """
    folder, spare = f"{seal}/{_OWN}/{name}", f"{seal}/{_SPARE}"
    if not os.path.lexists(folder):
        return
    with suppress(OSError):
        with suppress(FileExistsError):
            os.mkdir(spare)  # noqa: PTH102  text
        if len(os.listdir(spare)) < _MOST_SPARE:  # noqa: PTH208  as above
            os.rename(folder, f"{spare}/{os.urandom(8).hex()}")  # noqa: PTH104  text
            return
    delete_tree(Path(folder))

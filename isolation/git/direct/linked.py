"""The entry of a linked worktree in git's list, written without git, as gitrepository-layout documents it.

`git worktree add` makes it with three processes, and a kill in between leaves half an entry, at which git
commands of all worktrees stumble. Here an entry appears as a whole. It is on the disk before the lock is
taken that all stories wait for.
"""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from isolation.files.deletion import delete_tree
from isolation.files.disk import write_durably
from isolation.files.lookups import is_link, is_there
from isolation.files.plain import read_plain
from isolation.paths import autopilot_dir

_LARGEST_CONFIG, _LARGEST_LOG = 1 << 20, 1 << 26
_LEFT_TO_GIT = (b"extensions", b"sharedrepository")
"""What is in the configuration of a repository whose entries are not as simple: refs of another kind,
configuration for each worktree, relative paths, access for a group."""
_TRIES = 10


def is_simple(common: Path, also: Callable[[bytes], bool] | None = None) -> bool:
    """Return whether entries can be written here without git; what else is asked of the configuration holds.

    That has its letters in lower case.
    """
    try:
        config = read_plain(f"{common}/config", _LARGEST_CONFIG).lower()
    except OSError:
        return False
    return (
        not any(word in config for word in _LEFT_TO_GIT)
        and not is_there(f"{common}/reftable")
        and not is_link(f"{common}/worktrees")
        and (also is None or also(config))
    )


def draft_entry(
    common: Path, path: Path, branch: str, reason: str, *, mark: str = "", commit: str = ""
) -> Path:
    """Write the entry of a worktree, locked for a reason, where git does not see it yet. Waits for the disk.

    It has an empty file named `mark` from the beginning. Without a branch it is at a commit. A kill leaves it
    in the program's own folder, where it is deleted with the trash. Raises OSError.
    """
    draft = autopilot_dir(common) / "trash" / f"new-{secrets.token_hex(6)}"
    draft.mkdir(parents=True)
    files = {
        "commondir": b"../..\n",
        "HEAD": os.fsencode(f"ref: refs/heads/{branch}\n" if branch else f"{commit}\n"),
        "gitdir": os.fsencode(f"{path / '.git'}\n"),
        "locked": os.fsencode(f"{reason}\n"),
        **({mark: b""} if mark else {}),
    }
    try:
        # On the disk before they appear: a power failure leaves no entry whose files are empty. Each was
        # synced alone: other stories may be writing a lot to this disk.
        write_durably(draft, files)
    except BaseException:
        delete_tree(draft)
        raise
    return draft


def add_entry(common: Path, draft: Path, path: Path, branch: str, tip: str) -> None:
    """Make a worktree without files, on a branch or none at `tip`, of its draft. Under the metadata lock.

    The path is free, or an empty folder. A kill in between leaves a `.git` file that leads nowhere. Raises
    OSError; with EXDEV, and the draft still there, if the program's own folder is on another disk than git's.
    """
    listed = common / "worktrees"
    listed.mkdir(exist_ok=True)
    entry = _free_name(listed, path.name)
    log = first_line_of_log(common, branch, tip) if branch else b""
    if log:
        (draft / "logs").mkdir()
        (draft / "logs" / "HEAD").write_bytes(log)
    _make_folder(path)
    (path / ".git").write_bytes(os.fsencode(f"gitdir: {entry}\n"))
    try:
        listed.mkdir(exist_ok=True)
        draft.rename(entry)
    except OSError:
        (path / ".git").unlink()  # git makes a worktree in an empty folder alone
        raise


def _make_folder(path: Path) -> None:
    """Make a folder for a worktree, also if the empty one above it is removed just now.

    Who removes the last worktree in it does so without the lock.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            path.mkdir(parents=True, exist_ok=True)
            return
    path.mkdir(parents=True, exist_ok=True)


def first_line_of_log(common: Path, branch: str, tip: str) -> bytes:
    """Return what git logs for the HEAD of a new worktree; empty if it logs nothing."""
    try:
        last = read_plain(f"{common}/logs/refs/heads/{branch}", _LARGEST_LOG).splitlines()[-1]
    except (OSError, IndexError):
        return b""
    who = last.partition(b"\t")[0].split(b" ", 2)[-1]
    return b"%s %s %s\n" % (b"0" * len(tip), tip.encode(), who)


def _free_name(listed: Path, name: str) -> Path:
    """Return where the entry of a worktree goes; like git, with a number if another one has its name."""
    number, entry = 0, listed / name
    while os.path.lexists(entry):
        number += 1
        entry = listed / f"{name}{number}"
    return entry

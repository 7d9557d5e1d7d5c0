"""What a power failure, or a kill of git, leaves of worktrees: files that are empty or lack their end.

The files of a new worktree go to the disk while its first session works already. Until all of them are
there, an entry says so, which was there before any of them: `UNSETTLED`. It goes before anything that the
session did counts, so a tree that still has it holds no work that was acknowledged, and what is torn in it is
checked out again. A worktree whose own pointers are empty is set aside, never deleted, and made again.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from isolation.files.disk import sync_disk, sync_folder
from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.checkout import worktree_of
from isolation.git.registrations import is_ours, move_entry, removed_entries
from isolation.git.repository import Repository

UNSETTLED = "autopilot-unsettled"
"""In the git directory of a worktree whose files need not be on the disk yet."""

_POINTERS = ("gitdir", "commondir", "HEAD")


def settle(tree: Path, mark: Path) -> None:
    """Have all files of a worktree on the disk, and then nothing that says otherwise. Blocks."""
    sync_disk(tree)
    with suppress(FileNotFoundError):  # the user may have removed the worktree
        mark.unlink()
        sync_folder(mark.parent)


def set_aside_torn(repository: Repository, path: Path) -> None:
    """Set a worktree aside whose registration was cut off. The caller holds the metadata lock.

    So are other worktrees of ours without a `commondir`: with one of these, git adds no worktree at all.
    """
    entries, own = f"{repository.common_dir}/worktrees", path.name
    with suppress(FileNotFoundError):
        for name in os.listdir(entries):  # noqa: PTH208  many, as text
            entry, number = f"{entries}/{name}", name.removeprefix(own)
            # As git names them: with a number if there is one of this name already.
            numbered = name == own or (number != name and number.isdecimal())
            if numbered and _is_torn(entry, path):
                _set_entry_aside(repository, Path(entry), path)
            # Git writes the reason of the lock first, so an entry that came this far says whose it is.
            elif _is_empty(f"{entry}/commondir") and is_ours(entry):
                _set_entry_aside(repository, Path(entry), _tree_of(entry))
    if _is_empty(f"{path}/.git"):
        if [each.name for each in path.iterdir()] == [".git"]:  # cut off before anything else was there
            (path / ".git").unlink()
        else:
            _set_aside(path)


def _is_torn(entry: str, path: Path) -> bool:
    """Whether an entry is that of the worktree at a path, and was cut off."""
    belongs = _is_empty(f"{entry}/gitdir") or worktree_of(entry) == path
    return belongs and any(_is_empty(f"{entry}/{name}") for name in _POINTERS)


def _tree_of(entry: str) -> Path | None:
    """Return the worktree of an entry; None unless both point to each other, as a session may write one."""
    path = worktree_of(entry)
    with suppress(OSError):
        if path and os.fsdecode(read_plain(path / ".git", LONGEST_POINTER)).strip() == f"gitdir: {entry}":
            return path
    return None


def _set_entry_aside(repository: Repository, entry: Path, path: Path | None) -> None:
    trash = removed_entries(repository)
    trash.mkdir(parents=True, exist_ok=True)
    move_entry(entry, trash / f"{entry.name}-{secrets.token_hex(6)}")
    if path is not None:
        _set_aside(path)


def _set_aside(path: Path) -> None:
    if os.path.lexists(path):
        path.rename(path.with_name(f"{path.name}.torn-{secrets.token_hex(3)}"))


def _is_empty(file: str) -> bool:
    """Whether a file is there and has nothing in it."""
    try:
        found = os.stat(file)  # noqa: PTH116  as above
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == 0

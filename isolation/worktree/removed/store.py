"""Worktrees that were removed and can be brought back for a day: the last few, if the disk has room.

Each is a folder in the program's own: the tree, its part of the git directory, and a record, which is written
last. What has had no record for a while was cut off in between; it was to be removed, so it is deleted.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from isolation.decoding import from_json
from isolation.files.deletion import delete_tree
from isolation.files.disk import replace_file
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository
from isolation.paths import removed_dir

KEPT = 8
"""How many removed worktrees can be brought back."""

KEPT_SECONDS = 86_400.0
LEAST_FREE = 5 << 30
"""How many bytes must be free on the disk for any to be kept."""

_RECORD = "removed.json"
_PATIENCE_SECONDS = 600.0


class Removed(Struct, frozen=True, kw_only=True):
    """Where a removed worktree was and until when; `batch` is the run, or the `gc`, that removed it."""

    path: str
    branch: str | None
    batch: str
    at: float


class RemovedTree(Struct, frozen=True, kw_only=True):
    """A removed worktree that is still there."""

    folder: Path
    record: Removed

    @property
    def tree(self) -> Path:
        """Its files."""
        return tree_in(self.folder)

    @property
    def entry(self) -> Path:
        """Its part of the git directory."""
        return entry_in(self.folder)


def tree_in(folder: Path) -> Path:
    """Return where the files of a removed worktree are in its folder."""
    return folder / "tree"


def entry_in(folder: Path) -> Path:
    """Return where its part of the git directory is."""
    return folder / "git"


def new_folder(repository: Repository, tree: Path) -> Path | None:
    """Make a folder for a worktree that is about to be removed; None if it is not to be kept. Blocks."""
    try:
        root = removed_dir(repository.common_dir)
        if _is_short(repository) or tree.stat().st_dev != repository.common_dir.stat().st_dev:
            return None
        folder = root / secrets.token_hex(8)
        folder.mkdir(parents=True)
    except OSError:
        return None
    return folder


def record(folder: Path, removed: Removed) -> None:
    """Make a removed worktree known, now that all of it is in its folder."""
    replace_file(folder / _RECORD, msgspec.json.encode(removed), durable=False)


def load_removed(repository: Repository) -> tuple[RemovedTree, ...]:
    """Return what can be brought back, the newest first."""
    found = ((folder, _load(folder)) for folder in _folders(repository))
    now = time.time()
    trees = [
        RemovedTree(folder=folder, record=known)
        for folder, known in found
        if known is not None and abs(now - known.at) <= KEPT_SECONDS
    ]
    return tuple(sorted(trees, key=lambda tree: tree.record.at, reverse=True))


def thin_removed(repository: Repository, *, most: int = KEPT) -> None:
    """Delete what was removed more than a day ago, all but the newest, and everything if the disk is short.

    Blocks. Nothing is deleted before there are twice as many, so that closing a worktree rarely waits for it.
    """
    number = sum(1 for _ in _folders(repository))
    if number <= 2 * most and not (number and _is_short(repository)):
        return
    expire_removed(repository, most=most)


def expire_removed(repository: Repository, *, most: int = KEPT) -> None:
    """Do the same at once, however few there are. Blocks."""
    if not any(True for _ in _folders(repository)):
        return
    with metadata_lock(repository.common_dir):  # so that none is brought back at the same time
        kept = () if _is_short(repository) else load_removed(repository)[:most]
        staying = {tree.folder for tree in kept}
        going = [folder for folder in _folders(repository) if folder not in staying and _is_over(folder)]
        for folder in going:
            (folder / _RECORD).unlink(missing_ok=True)  # from now on it cannot be brought back
    for folder in going:
        with suppress(OSError):
            delete_tree(folder)
    with suppress(OSError):
        removed_dir(repository.common_dir).rmdir()


def _folders(repository: Repository) -> Iterator[Path]:
    try:
        yield from removed_dir(repository.common_dir).iterdir()
    except OSError:
        return


def _is_over(folder: Path) -> bool:
    """Whether no process is putting a tree there right now."""
    try:
        return (folder / _RECORD).exists() or time.time() - folder.stat().st_mtime > _PATIENCE_SECONDS
    except OSError:
        return False


def _load(folder: Path) -> Removed | None:
    try:
        return from_json((folder / _RECORD).read_bytes(), Removed)
    except (OSError, ValueError):
        return None


def _is_short(repository: Repository) -> bool:
    disk = os.statvfs(repository.common_dir)
    return disk.f_bavail * disk.f_frsize < LEAST_FREE

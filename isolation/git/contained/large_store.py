"""Where a story's commands put the files of git-lfs: in a folder of its own, as with objects.

In the mounts of a session, and of a git command on a story's tree, a folder of the story's own stands in the
place of the repository's store. That one is read-only beside the objects which git finds as an alternate, and
git-lfs looks there by itself: it copies what it needs from there.

Invariants:

- What is in the repository's store stays as it is, whatever a session does.
- A file is taken over as the bytes whose digest is its name, and seen there once they are on the disk.
"""

import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from isolation.files.deletion import delete_tree
from isolation.files.lookups import is_folder, is_link
from isolation.paths import autopilot_dir
from isolation.patterns import pattern

LARGE_FILES = "lfs"
"""The folder of git-lfs, in a git directory and beside the objects that an alternate names."""

_NAME = pattern(r"[0-9a-f]{64}")
_CHUNK = 1 << 20
_YOUNG_SECONDS = 60.0
"""What was written a moment ago may be read next: git-lfs copies a file before it opens it."""


@lru_cache(maxsize=1024)
def large_store_of(common: Path, name: str) -> Path:
    """Return the folder for the files of git-lfs that are made in the worktree of this name."""
    return autopilot_dir(common) / "large-files" / name


def large_mounts(common: Path, name: str) -> dict[Path, Path]:
    """Return what stands where, the writable place first; empty where git-lfs stores nothing. Blocks."""
    text = f"{common}/{LARGE_FILES}"  # where there is none, as usual, that is all that is asked
    if not is_folder(text) or is_link(text):
        return {}
    real = Path(text)
    own, shown = large_store_of(common, name), autopilot_dir(common) / LARGE_FILES
    for folder in (own, shown):
        folder.mkdir(parents=True, exist_ok=True)
    return {real: own, shown: real}


def take_over_large(common: Path, name: str) -> None:
    """Copy what is whole from a story's folder to the repository's store. Blocks; commands may be running.

    What the repository has goes, except for what was written a moment ago.
    """
    own = large_store_of(common, name)
    if not is_folder(own):
        return
    store = common / LARGE_FILES / "objects"
    for source in _stored(own / "objects"):
        place = place_of(store, source.name)
        if not place.exists() and not keep_copy(source, place):
            continue  # git-lfs is writing it, or it is not what its name says; it goes with the folder
        with suppress(OSError):
            if time.time() - source.lstat().st_mtime > _YOUNG_SECONDS:
                source.unlink()


def drop_large(common: Path, name: str) -> None:
    """Take over what is in a story's folder, then delete it. Blocks; nothing may be running there."""
    if is_folder(large_store_of(common, name)):
        take_over_large(common, name)
        delete_tree(large_store_of(common, name))


def place_of(store: Path, name: str) -> Path:
    """Return where a store has the file of this digest."""
    return store / name[:2] / name[2:4] / name


def keep_copy(source: Path, place: Path) -> bool:
    """Copy a file to its place in a store; false, without any copy, if its name is not its digest."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        draft, digest = (
            place.with_name(f".{place.name}.{os.getpid()}-{secrets.token_hex(4)}"),
            hashlib.sha256(),
        )
        try:
            with draft.open("xb") as copy:
                while part := file.read(_CHUNK):
                    digest.update(part)
                    copy.write(part)
                copy.flush()
                os.fsync(copy.fileno())
            if digest.hexdigest() != place.name:
                return False
            draft.rename(place)
        finally:
            draft.unlink(missing_ok=True)
    return True


def _stored(folder: Path) -> Iterator[Path]:
    """Yield the files of a store that have the name of a digest, each at its place."""
    for first in _folders(folder):
        for second in _folders(first):
            with suppress(OSError), os.scandir(second) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False) and _NAME.fullmatch(entry.name):
                        yield second / entry.name


def _folders(above: Path) -> list[Path]:
    try:
        with os.scandir(above) as entries:
            return [above / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []

"""Objects that are written without git: loose ones, as gitrepository-layout documents them.

They appear under their names once all of them are on the disk, with one wait for it. A kill before that
leaves files that git's own `gc` removes, since they are named like its temporary ones.
"""

import hashlib
import os
import zlib
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from isolation.files.disk import sync_disk

_FASTEST = 1
_MODE = 0o444
_TEMPORARY = "tmp_obj_"


def object_id(kind: bytes, content: bytes) -> bytes:
    """Return what git calls an object in a repository with the usual ids."""
    return hashlib.sha1(b"%b %d\0" % (kind, len(content)) + content, usedforsecurity=False).digest()


class NewObjects:
    """Objects to be added to those in a folder; at the end of the block, what has not appeared is deleted."""

    def __init__(self, objects: Path) -> None:
        self._objects = objects
        self._waiting: dict[str, str] = {}  # the file of each, by the path at which it will appear

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for file in self._waiting.values():
            with suppress(OSError):
                os.unlink(file)  # noqa: PTH108  names, of which there may be many

    def add(self, kind: bytes, content: bytes) -> bytes:
        """Write an object, unless it is there, and return its id. Blocks."""
        found = object_id(kind, content)
        name = found.hex()
        folder = f"{self._objects}/{name[:2]}"
        place = f"{folder}/{name[2:]}"
        if place not in self._waiting and not _is_there(place):
            self._waiting[place] = _written(folder, zlib.compress(_header(kind, content) + content, _FASTEST))
        return found

    def appear(self) -> None:
        """Have all of them on the disk, and then at their places. Blocks."""
        if not self._waiting:
            return
        sync_disk(self._objects)
        for place, file in self._waiting.items():
            os.rename(file, place)  # noqa: PTH104  as above
        self._waiting.clear()


def _is_there(place: str) -> bool:
    """Whether there is an object; if so it counts as new, as with git, so that no `gc` removes it."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    except OSError:  # another user's
        return os.path.exists(place)  # noqa: PTH110  as above
    return True


def _header(kind: bytes, content: bytes) -> bytes:
    return b"%b %d\0" % (kind, len(content))


def _written(folder: str, data: bytes) -> str:
    """Write a file that has no name yet that anybody looks for."""
    file = f"{folder}/{_TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(file, flags, _MODE)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103  as above
        descriptor = os.open(file, flags, _MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except BaseException:
        os.unlink(file)  # noqa: PTH108  as above
        raise
    finally:
        os.close(descriptor)
    return file

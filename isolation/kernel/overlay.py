"""What an overlay's upper folder holds: everything that was written over the tree below, and how.

A deleted name is a character device 0:0; a folder that was removed and made again is marked opaque.
A rename shows as a deletion and a new file, since overlays are mounted without references. A folder is also
listed if it exists only because something in it does.
"""

import os
import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")


class ChangeKind(StrEnum):
    """What an overlay has at a path."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    DELETED = "deleted"
    OTHER = "other"


class OverlayChange(Struct, frozen=True, kw_only=True):
    """One path of an overlay, relative to the tree; `mode` holds the permissions.

    A folder that is `replaced` hides all that the tree has below it.
    """

    path: str
    kind: ChangeKind
    mode: int
    replaced: bool = False


def overlay_changes(upper: Path) -> tuple[OverlayChange, ...]:
    """Return what an overlay holds, in the order of the paths."""
    return tuple(sorted(_walk(upper, ""), key=lambda change: change.path))


def _walk(folder: Path, prefix: str) -> Iterator[OverlayChange]:
    with os.scandir(folder) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            path = prefix + entry.name
            kind = _kind(found)
            replaced = kind is ChangeKind.FOLDER and _is_opaque(entry.path)
            yield OverlayChange(path=path, kind=kind, mode=stat.S_IMODE(found.st_mode), replaced=replaced)
            if kind is ChangeKind.FOLDER:
                yield from _walk(Path(entry.path), f"{path}/")


def _kind(found: os.stat_result) -> ChangeKind:
    mode = found.st_mode
    if stat.S_ISCHR(mode) and found.st_rdev == 0:
        return ChangeKind.DELETED
    kinds = {
        stat.S_IFREG: ChangeKind.FILE,
        stat.S_IFLNK: ChangeKind.LINK,
        stat.S_IFDIR: ChangeKind.FOLDER,
    }
    return kinds.get(stat.S_IFMT(mode), ChangeKind.OTHER)


def _is_opaque(path: str) -> bool:
    for name in _OPAQUE:
        try:
            if os.getxattr(path, name, follow_symlinks=False) == b"y":
                return True
        except OSError:
            continue  # not marked, or not readable for us
    return False

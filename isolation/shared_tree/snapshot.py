"""What a working tree looks like, by one look at every entry: all that git does not show is in it.

Ignored files, modes, empty folders, the inside of nested repositories and files that were edited and
given their old times back have a sign like any other: the time of the last change of an entry (ctime)
cannot be set by anybody. Folders carry their mode alone, since their times change with what is in them.
"""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from isolation.frozen import frozen
from isolation.paths import EXCHANGE

CLOCK = "clock"
RESERVED = frozenset({".git", EXCHANGE})
"""The names at the top that are not part of the tree: git's, and this program's own."""


class Sign(NamedTuple):
    """What one entry looked like. A tuple, since there is one for each file of the tree."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    nlink: int

    @property
    def is_folder(self) -> bool:
        """Tell whether it is a folder."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Tell whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        """Tell whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)


Picture = dict[str, Sign]


@frozen
class Difference:
    """One path that looks different; None is not there."""

    path: str
    before: Sign | None
    after: Sign | None


def take(top: Path, *, open_to_all: Callable[[str], bool]) -> Picture:
    """Look at every entry of a tree; folders that are open to all are left out with all that is in them."""
    picture: Picture = {}
    pending = [""]
    while pending:
        prefix = pending.pop()
        try:
            with os.scandir(top / prefix if prefix else top) as entries:
                for entry in entries:
                    if not prefix and entry.name in RESERVED:
                        continue
                    path = prefix + entry.name
                    sign = _signed(entry.stat(follow_symlinks=False))
                    if not sign.is_folder:
                        picture[path] = sign
                    elif not open_to_all(path):
                        picture[path] = sign
                        pending.append(f"{path}/")
        except OSError:
            continue  # it is being taken away this very moment, or is closed to us
    return picture


def sign_of(path: Path) -> Sign | None:
    """Look at one entry; None when it is not there."""
    try:
        return _signed(path.lstat())
    except OSError:
        return None


def differences(before: Mapping[str, Sign], after: Mapping[str, Sign]) -> list[Difference]:
    """List what looks different, in the order of the paths."""
    paths = {path for path, sign in after.items() if before.get(path) != sign}
    paths |= before.keys() - after.keys()
    return [Difference(path=path, before=before.get(path), after=after.get(path)) for path in sorted(paths)]


def file_system_time(folder: Path) -> int:
    """Give the time that an entry changed now would carry: the clock of the file system itself."""
    clock = folder / CLOCK
    folder.mkdir(parents=True, exist_ok=True)
    clock.touch()
    os.utime(clock)
    return clock.stat().st_ctime_ns


def _signed(found: os.stat_result) -> Sign:
    if stat.S_ISDIR(found.st_mode):
        return Sign(found.st_mode, 0, 0, 0, 0, 0)
    return Sign(
        found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_nlink
    )

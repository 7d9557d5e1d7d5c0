"""Questions about files, quickly: also by paths that are text.

What every story asks hundreds of times is asked without pathlib, which takes longer to join a path than the
kernel does to answer. What is not there is no error. What cannot be looked at is one, as with pathlib: it
must not count as gone.
"""

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

_NOT_THERE = (FileNotFoundError, NotADirectoryError, ValueError)
"""Nothing has the name, or nothing can have it."""


def is_there(path: Path | str) -> bool:
    """Whether there is something, or a link that leads to something."""
    return _mode(path) != 0


def is_folder(path: Path | str) -> bool:
    """Whether there is a folder, or a link to one."""
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path | str) -> bool:
    """Whether there is a regular file, or a link to one."""
    return stat.S_ISREG(_mode(path))


def is_link(path: Path | str) -> bool:
    """Whether there is a symbolic link."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except _NOT_THERE:
        return False
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _mode(path: Path | str) -> int:
    try:
        return os.stat(path).st_mode  # noqa: PTH116  see above
    except _NOT_THERE:
        return 0
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return 0


def present(folder: Path | str, names: Collection[str]) -> list[str]:
    """Return those of some names that are there in a folder, in their order, by one look if none is."""
    try:
        found = set(os.listdir(folder))  # noqa: PTH208  names are enough
    except OSError:  # it may be one that cannot be listed
        found = set(names)
    return [name for name in names if name in found and is_there(f"{folder}/{name}")]

"""Whether a settings file exists, or something else has its name.

Nothing is opened here: a named pipe would block its reader forever.
"""

import errno
import stat
from pathlib import Path

_OTHERS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


def exists(path: Path) -> bool:
    """Return whether anything has this name, even a broken link."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def obstacle(path: Path) -> str:
    """Return what has the name of a file without being one; empty for a file, or when nothing has it."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return "a broken link" if exists(path) else ""
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link to itself"
        raise
    return "" if kind == stat.S_IFREG else _OTHERS.get(kind, "a device")

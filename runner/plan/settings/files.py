"""What stands where a settings file may be: a file, nothing, or something that is neither.

Nothing is opened here: a named pipe would keep its reader waiting for ever.
"""

import errno
import stat
from pathlib import Path

_OTHERS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


def is_there(path: Path) -> bool:
    """Tell whether anything has this name, be it a link to nothing."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def obstacle(path: Path) -> str:
    """Say what stands there in place of a file; empty when a file does, or nothing at all."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return "a link to nothing" if is_there(path) else ""
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link that leads in a circle"
        raise
    return "" if kind == stat.S_IFREG else _OTHERS.get(kind, "a device")

"""Whether a settings file exists, or something else has its name; and where in a file a key is.

Nothing is opened here: a named pipe would block its reader forever.
"""

import errno
import stat
from functools import lru_cache
from pathlib import Path

from isolation.patterns import pattern

_OTHERS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
_HEADING = pattern(r"\s*\[\[?([^\]]+)\]")
_KEY = pattern(r"""\s*([\w.'"-]+)\s*=""")


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


@lru_cache(maxsize=256)  # each entry of a long list asks for the line of its key
def line_of(keys: tuple[str, ...], text: str) -> int | None:
    """Return the line of a TOML text on which a key, or its table, begins; None if it is not found."""
    wanted = [_plain(key) for key in keys]
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if heading := _HEADING.match(line):
            table = path = _parts(heading[1])
        elif key := _KEY.match(line):
            path = [*table, *_parts(key[1])]
        else:
            continue
        if path[: len(wanted)] == wanted:
            return number
    return None


def _parts(dotted: str) -> list[str]:
    return [_plain(part.strip().strip("\"'")) for part in dotted.split(".")]


def _plain(key: str) -> str:
    return key.replace("-", "_")  # hooks may be written with either

"""Replaces a file and returns exactly what it held at that moment.

A plain rename loses what another process wrote an instant before. Where the kernel can exchange two names
atomically, nothing is lost: the old content is available afterwards and can be compared. Readers, and a
crash, see the old file or the new one, never a part and never nothing.
"""

import ctypes
import errno
import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from isolation.files.disk import sync_folder
from isolation.files.plain import read_plain

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_PAUSE = 0.005

SETTLING = 0.5
"""Seconds that a writer may take between emptying a file and filling it."""


MOST_BYTES = 1 << 24


class Changed(Exception):  # noqa: N818  a finding, not a fault
    """The file is not what the caller has seen; nothing was written."""


def put(
    path: Path, data: bytes, *, seen: bytes | None, staging: Path, whole: Callable[[bytes], bool]
) -> bytes | None:
    """Replace the content of `path` with `data`, and return what it held at that moment.

    `seen` is the content that the caller knows, None for no file. Raises `Changed` rather than overwrite
    other content on systems that cannot exchange files. Displaced content that is not `whole` may still be
    being written, so its writer gets time to finish.
    """
    folder = staging if _same_device(staging, path.parent) else path.parent
    temporary = folder / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        _write(temporary, data, _mode(path))
        displaced = _place(temporary, path, seen, whole)
    finally:
        temporary.unlink(missing_ok=True)
    with suppress(OSError):
        sync_folder(path.parent)
    return displaced


def read_settled(path: Path, whole: Callable[[bytes], bool]) -> bytes:
    """Read a file; an incomplete one that was just written is read again until it is complete."""
    while True:
        data = read_bounded(path)
        if whole(data) or abs(time.time() - path.stat().st_mtime) > SETTLING:
            return data
        time.sleep(_PAUSE)


def read_bounded(path: Path) -> bytes:
    """Read a file that a session may have replaced; no plain file, or one far too large, is an OSError."""
    data = read_plain(path, MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data


def _place(temporary: Path, path: Path, seen: bytes | None, whole: Callable[[bytes], bool]) -> bytes | None:
    if seen is None:
        # A link, unlike a rename, fails if another process has created the file meanwhile.
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise Changed from None
        return None
    if _exchange(temporary, path):
        # `temporary` now holds what was displaced, no matter which process wrote it.
        return read_settled(temporary, lambda found: found == seen or whole(found))
    # Without an atomic exchange, comparing first leaves a gap of microseconds.
    try:
        unchanged = read_bounded(path) == seen
    except FileNotFoundError:
        unchanged = False
    if not unchanged:
        raise Changed
    temporary.replace(path)
    return seen


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically; return False if the system cannot."""
    rename = _renameat2()
    if rename is None:
        return False
    return rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None), "renameat2", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return function


def _write(path: Path, data: bytes, mode: int | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return None


def _same_device(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev

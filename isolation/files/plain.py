"""Files in folders that a session can write to: read without surprises, made without leaving the tree.

A session may leave a link, a FIFO, a device or a huge file where a plain file is expected. Opening a FIFO
waits for a writer, a device may never end, and a link leads to what only this process may write.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from isolation.files.deletion import delete_tree
from isolation.files.disk import replace_file
from isolation.files.lookups import is_file, is_folder, is_link

LONGEST_POINTER = 1 << 16
"""Bytes of a file that holds one line, such as a path."""
_CHUNK = 1 << 20


def read_plain(path: Path | str, most: int, *, follow: bool = True) -> bytes:
    """Read at most `most` bytes of a regular file, without waiting; anything else is an OSError.

    Unless it may `follow` links, neither the file nor a folder above it may be one.
    """
    # Without a file object, which takes longer than to read: every git command on a tree reads a dozen files.
    descriptor, size = _opened(os.fspath(path), follow=follow, flags=os.O_RDONLY)
    try:
        parts, left, chunk = [], most, min(size + 1, _CHUNK) if size else LONGEST_POINTER
        while left and (part := os.read(descriptor, min(left, chunk))):
            parts.append(part)
            left -= len(part)
            if most - left == size:  # all of it, as it was when it was opened
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(descriptor)


def open_plain(path: Path | str, *, follow: bool = True, flags: int = os.O_RDONLY) -> int:
    """Open a regular file as `read_plain` does, and return its descriptor, which the caller closes."""
    return _opened(os.fspath(path), follow=follow, flags=flags)[0]


def _opened(path: str, *, follow: bool, flags: int) -> tuple[int, int]:
    """Return the descriptor of a regular file, and its size."""
    flags |= os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    if not follow and not _is_at(descriptor, path):
        os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.path.dirname(path))  # noqa: PTH120  text
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor, found.st_size


def _is_at(descriptor: int, path: str) -> bool:
    """Whether no folder above an open file is a link."""
    try:
        # What the kernel says is one question, for the file that is open; each folder would be one more.
        if os.readlink(f"/proc/self/fd/{descriptor}") == path:  # noqa: PTH115  a link of procfs
            return True
    except OSError:
        pass  # not on this system
    folder = os.path.dirname(path)  # noqa: PTH120  text
    return os.path.realpath(folder) == folder


def make_plain_folder(top: Path, folder: Path) -> None:
    """Make a folder below `top` that is this program's own; a link or the like in its place is removed.

    A plain file is an error: it may be somebody's work.
    """
    here = f"{top}"
    for part in folder.relative_to(top).parts:
        here = f"{here}/{part}"
        is_a_link = is_link(here)
        if not is_a_link and is_file(here):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), here)
        if is_a_link or not is_folder(here):
            Path(here).unlink(missing_ok=True)
            Path(here).mkdir(exist_ok=True)


def write_plain(path: Path, data: bytes) -> None:
    """Write a file that is this program's own, whatever stands at its path."""
    make_room(path)
    replace_file(path, data, durable=False)


def make_room(path: Path) -> None:
    """Remove what is at a path of this program's own; a link is removed, not followed."""
    try:
        os.unlink(path)  # noqa: PTH108  hardly ever is there anything
    except FileNotFoundError:
        return
    except OSError:
        with suppress(NotADirectoryError):
            delete_tree(path)

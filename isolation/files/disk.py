"""Locks between processes, and files that are replaced whole.

Standard library only. Three rules keep the locks exclusive:

- A lock file is never unlinked: otherwise two processes could lock two files of the same name.
- Its descriptor is closed in every child, by exec and by fork alike: a surviving child would keep the lock.
- After locking, the inode is compared with what the path names now.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

_open_locks: set[int] = set()


def _close_inherited() -> None:
    """Drop the parent's locks in a forked child; closing a copy does not unlock the original."""
    for descriptor in _open_locks:
        with suppress(OSError):
            os.close(descriptor)
    _open_locks.clear()


os.register_at_fork(after_in_child=_close_inherited)


class LockFile:
    """A held `flock`; `release()`, the end of the block or the end of the process releases it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _open_locks.add(descriptor)

    @classmethod
    def attempt(cls, path: Path, *, shared: bool = False, create: bool = True) -> Self | None:
        """Lock `path` without waiting; None if another process holds it."""
        while True:
            # Not waiting for the other end, if a session left a FIFO there.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            # A lock that another user could open could also be held by them.
            descriptor = os.open(path, flags, 0o600)
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                # A user may have deleted the file between open and lock; then the new one must be locked.
                if _same_file(descriptor, path):
                    return cls(descriptor)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def release(self) -> None:
        """Release the lock; a second call is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor in _open_locks:
            _open_locks.discard(descriptor)
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def replace_file(path: Path, data: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Write `data` so that readers, and a crash, see the old file or the new one, never a part.

    What is meaningless after a power failure need not be `durable`, which saves two waits for the disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if not durable:
        return
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power failure, such as that of a file that was just renamed."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sync_disk(path: Path) -> None:
    """Make all that was written to the disk of a folder survive a power failure; one that is gone has none.

    One wait for the disk, however many files there are. It is never left out: whether a session has written
    something, only the kernel knows. Raises OSError if the disk could not write something.
    """
    import ctypes  # what only shows something need not load it

    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "syncfs"):  # macOS
            os.sync()
        elif libc.syncfs(folder) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(folder)


def read_tail(path: Path, size: int) -> bytes:
    """Read the last `size` bytes of a file; one that does not exist is empty."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except FileNotFoundError:
        return b""

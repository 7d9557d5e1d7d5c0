"""Locks between processes, and files that are replaced whole.

Standard library only. Three rules keep the locks exclusive:

- A lock file is never unlinked: otherwise two processes could lock two files of the same name.
- Its descriptor is closed in every child, by exec and by fork alike: a surviving child would keep the lock.
- After locking, the inode is compared with what the path names now.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import cache
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
    def attempt(cls, path: Path | str, *, shared: bool = False, create: bool = True) -> Self | None:
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


def attempt_in_folder(path: Path) -> LockFile | None:
    """Lock a file without waiting, as `LockFile.attempt` does; its folder need not be there."""
    try:
        return LockFile.attempt(path)
    except FileNotFoundError:
        path.parent.mkdir(exist_ok=True)
        return LockFile.attempt(path)


def _same_file(descriptor: int, path: Path | str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))  # noqa: PTH116  also text
    except FileNotFoundError:
        return False


def replace_file(path: Path | str, data: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Write `data` so that readers, and a crash, see the old file or the new one, never a part.

    What is meaningless after a power failure need not be `durable`, which saves two waits for the disk.
    """
    # Names as text, and no file object: a story has twenty small files written.
    place = os.fspath(path)
    folder, name = os.path.split(place)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")  # noqa: PTH118  text
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            _write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, place)  # noqa: PTH105  text
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108  text
        raise
    if durable:
        sync_folder(folder or ".")


def write_new(path: Path | str, data: bytes) -> None:
    """Write a file that, as a rule, is not there yet, and is as good as absent while it is empty.

    One that is there is replaced as a whole. A rename takes as long as to make a file, so it is left out.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        replace_file(path, data, durable=False)
        return
    try:
        _write_all(descriptor, data)
    except BaseException:
        os.unlink(path)  # noqa: PTH108  also text
        raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_durably(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write new files into a folder that survive a power failure, and so do their names there."""
    with ExitStack() as opened:
        descriptors = []
        for name, data in files.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(folder / name, flags, 0o666)
            opened.callback(os.close, descriptor)
            os.write(descriptor, data)  # short, so it is written as a whole or not at all
            descriptors.append(descriptor)
            if hasattr(os, "posix_fadvise"):  # starts to write, so that one wait is nearly all there is
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        for descriptor in descriptors:
            os.fsync(descriptor)
    sync_folder(folder)


def sync_folder(path: Path | str) -> None:
    """Make the names in a folder survive a power failure, such as that of a file that was just renamed."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class _Syncs:
    """The waits for the disk of one file system; `number` counts those that began, from 1 on."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.active = False
        self.number = 0
        self.ended = 0
        self.failed = 0
        self.error = OSError()


_syncs: dict[int, _Syncs] = {}
_syncs_lock = threading.Lock()


def sync_disk(path: Path) -> None:
    """Make all that was written to the disk of a folder survive a power failure; one that is gone has none.

    One wait for the disk, however many files there are. It is never left out: whether a session has written
    something, only the kernel knows. Threads that come while another one waits share the next wait. Raises
    OSError if the disk could not write something.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        with _syncs_lock:
            syncs = _syncs.setdefault(os.fstat(folder).st_dev, _Syncs())
        if _begin(syncs):
            _sync(syncs, folder, path)
    finally:
        os.close(folder)


def _begin(syncs: _Syncs) -> bool:
    """Return whether it is for this thread to wait for the disk; False once another has done so since.

    A wait that began earlier does not count: what was written since then need not be part of it.
    """
    with syncs.changed:
        enough = syncs.number + 1
        while syncs.active and syncs.ended < enough:
            syncs.changed.wait()
        if syncs.ended >= enough:
            if syncs.failed >= enough:
                raise OSError(syncs.error.errno, syncs.error.strerror, syncs.error.filename)
            return False
        syncs.active, syncs.number = True, enough
    return True


def _sync(syncs: _Syncs, folder: int, path: Path) -> None:
    """Wait for the disk, and let those know who share it."""
    error: OSError | None = OSError(errno.EINTR, os.strerror(errno.EINTR), str(path))
    try:
        _flush(folder, path)
        error = None
    except OSError as found:
        error = found
        raise
    finally:
        with syncs.changed:
            syncs.active, syncs.ended = False, syncs.number
            if error is not None:
                syncs.failed, syncs.error = syncs.number, error
            syncs.changed.notify_all()


def _flush(folder: int, path: Path) -> None:
    syncfs = _syncfs()
    if syncfs is None:
        os.sync()
    elif number := syncfs(folder):
        raise OSError(number, os.strerror(number), str(path))


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Return what syncs the disk of an open folder, and returns an error's number or zero; None on macOS."""
    import ctypes  # what only shows something need not load it

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        return None
    return lambda folder: ctypes.get_errno() if libc.syncfs(folder) != 0 else 0


def read_tail(path: Path, size: int) -> bytes:
    """Read the last `size` bytes of a file; one that does not exist is empty."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except FileNotFoundError:
        return b""

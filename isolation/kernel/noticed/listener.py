"""What a filter of system calls reports, heard by a thread of the keeper that lets each call continue.

Standard library only. Invariants:

- Every notification is answered, whatever the inspection finds. Without a listener a filtered call fails
  (ENOSYS), so it lives until all that is filtered has ended.
- It enforces nothing. So it does no harm that what a call names can change between the inspection and the
  call itself.
"""

# Without contextlib: each inspection must be fast.
# ruff: noqa: SIM105

import _thread
import ctypes
import errno
import fcntl
import select
import signal
import struct
from collections.abc import Sequence

_RECEIVE, _ANSWER, _STILL_VALID, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104
_SAME_PROCESSOR = 1
_CONTINUE = 1
_NOTICE = struct.Struct("=QIIiIQ6Q")
_REPLY = struct.Struct("=QqiI")
_PAGE = 4096
_LONGEST = 4096

_ALL_SIGNALS = frozenset(map(int, signal.valid_signals()))
"""Asked once, in the process that all keepers are forked from."""

_libc = ctypes.CDLL(None, use_errno=True)


class Listener:
    """Hears of one session's calls; what they try is for a subclass to tell, and to report."""

    word = ""
    """Begins its report in a keeper's last line."""

    def __init__(self, listener: int) -> None:
        self._listener = listener
        self._reader: Memory | None = None
        try:
            fcntl.ioctl(listener, _SET_FLAGS, _SAME_PROCESSOR)
        except OSError:
            pass  # an older kernel is only slower

    @property
    def _memory(self) -> "Memory":
        """What reads the memory of other processes; most sessions never need it."""
        if self._reader is None:
            self._reader = Memory()
        return self._reader

    def start(self) -> None:
        """Listen from now on, in a thread of its own, so that it never delays the keeper."""
        _thread.start_new_thread(self.run, ())

    def run(self) -> None:
        """Handle every call until no process is left to make one; older kernels do not report that end."""
        signal.pthread_sigmask(signal.SIG_SETMASK, _ALL_SIGNALS)
        notice, poll = bytearray(_NOTICE.size), select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            notice[:] = bytes(_NOTICE.size)  # the kernel requires zeros
            try:
                fcntl.ioctl(self._listener, _RECEIVE, notice)
            except OSError:  # the caller has been killed, or all have ended
                if any(events & select.POLLHUP for _, events in poll.poll(0)):
                    return
                continue
            self._handle(*_NOTICE.unpack(notice))

    def report(self) -> str:
        """Return what was tried, as words without spaces."""
        return ""

    def inspect(self, tid: int, call: int, arguments: Sequence[int]) -> Sequence[tuple[str, bytes]]:
        """Return what a call, by its number, tries."""
        del tid, call, arguments
        return ()

    def remember(self, tried: Sequence[tuple[str, bytes]]) -> None:
        """Keep what was tried for the report."""

    def _handle(self, number: int, tid: int, _: int, call: int, __: int, ___: int, *arguments: int) -> None:
        """Inspect one call, and let it continue."""
        try:
            tried = self.inspect(tid, call, arguments)
            if tried and self._still_waits(number):
                self.remember(tried)
        except Exception:  # noqa: BLE001, S110  an error here must not block the session
            pass
        try:
            fcntl.ioctl(self._listener, _ANSWER, _REPLY.pack(number, 0, 0, _CONTINUE))
        except OSError:
            pass  # it was killed meanwhile

    def _still_waits(self, number: int) -> bool:
        """Return whether the caller still waits; else another process may have been inspected instead."""
        try:
            fcntl.ioctl(self._listener, _STILL_VALID, struct.pack("=Q", number))
        except OSError:
            return False
        return True


class Memory:
    """Reads the memory of other processes."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(_PAGE)
        self._ours = _MemoryRange(ctypes.addressof(self._buffer), _PAGE)
        self._theirs = _MemoryRange(0, 0)
        self._from_to = ctypes.byref(self._ours), 1, ctypes.byref(self._theirs), 1, 0

    def text(self, tid: int, address: int) -> bytes:
        """Return the text up to its NUL, which must come within the length of a path."""
        found = b""
        while len(found) < _LONGEST:
            # Not across the end of a page: the next one may not be mapped.
            part = self.read(tid, address, _PAGE - address % _PAGE)
            text, end, _ = part.partition(b"\0")
            found += text
            if end:
                return found
            address += len(part)
        raise OSError(errno.ENAMETOOLONG, "no end")

    def read(self, tid: int, address: int, size: int) -> bytes:
        """Read at most one page."""
        self._ours.length = self._theirs.length = size
        self._theirs.base = address
        got = _libc.process_vm_readv(tid, *self._from_to)
        if got <= 0:
            raise OSError(ctypes.get_errno(), "memory of another process")
        return self._buffer.raw[:got]


class _MemoryRange(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

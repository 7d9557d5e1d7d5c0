"""Which of the things that stand in for private ones a session has opened.

Standard library only. A read of something empty succeeds, so no program says a word about it. The kernel
reports each opening (inotify), and collects the reports until somebody reads them: nothing has to run
meanwhile.
"""

import ctypes
import os
import struct
from array import array
from collections.abc import Iterable, Sequence

_OPENED = 0x20
_EVENT = struct.Struct("=iIII")
_MOST_BYTES = 1 << 20

LIBC = ctypes.CDLL(None, use_errno=True)


def watch(stand_ins: Sequence[bytes]) -> tuple[int, "array[int]"]:
    """Watch stand-ins; return what reports openings, and the number of each watch, negative for none.

    At the limit of such descriptors nothing is reported, and the first number is negative, too.
    """
    descriptor: int = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return descriptor, array("i")
    return descriptor, array("i", [LIBC.inotify_add_watch(descriptor, path, _OPENED) for path in stand_ins])


class Openings:
    """Remembers which stand-ins of one session are opened; the number of each watch is given with a place."""

    def __init__(self, descriptor: int, watches: Iterable[tuple[int, bytes]]) -> None:
        self._descriptor = descriptor
        self._places = {number: place for number, place in watches if number >= 0}

    def report(self) -> list[bytes]:
        """Return the places that were opened, each once.

        The descriptor is left to the end of this process: the kernel takes milliseconds to close it, and
        somebody waits for this answer.
        """
        found: dict[bytes, None] = {}
        try:
            while data := os.read(self._descriptor, _MOST_BYTES):
                at = 0
                while at < len(data):
                    watch, _, _, size = _EVENT.unpack_from(data, at)
                    at += _EVENT.size + size
                    if watch in self._places:
                        found[self._places[watch]] = None
        except BlockingIOError:
            pass
        return list(found)

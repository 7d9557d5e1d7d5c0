"""Which of the things that stand in for private ones a session has opened.

Standard library only. A read of something empty succeeds, so no program says a word about it. The kernel
reports each opening (inotify), and collects the reports until somebody reads them: nothing has to run
meanwhile.
"""

import ctypes
import os
import struct
from collections.abc import Mapping

_OPENED = 0x20
_EVENT = struct.Struct("=iIII")
_MOST_BYTES = 1 << 20

LIBC = ctypes.CDLL(None, use_errno=True)


class Openings:
    """Remembers which stand-ins of one session are opened; each is given with its place."""

    def __init__(self, stand_ins: Mapping[bytes, bytes]) -> None:
        self._places: dict[int, bytes] = {}
        self._descriptor: int = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:  # the limit of such descriptors is reached: nothing is named
            return
        for place, stand_in in stand_ins.items():
            watch = LIBC.inotify_add_watch(self._descriptor, stand_in, _OPENED)
            if watch >= 0:
                self._places[watch] = place

    def report(self) -> list[bytes]:
        """Return the places that were opened, each once.

        The descriptor is left to the end of this process: the kernel takes milliseconds to close it, and
        somebody waits for this answer.
        """
        if self._descriptor < 0:
            return []
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

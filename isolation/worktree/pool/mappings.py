"""The files that a process has mapped so that what it writes to memory is written to them.

`/proc/<pid>/maps` names all mappings as text, hundreds of them for a usual program, and takes longer than all
else that is asked of a process. Since Linux 6.11 the kernel finds the few of this kind by itself; see
`PROCMAP_QUERY` in its `fs.h`.
"""

import errno
import fcntl
import os
import re
import struct
import sys
from collections.abc import Iterator
from functools import cache

from isolation.files.plain import read_plain
from isolation.patterns import pattern

_QUERY = 0xC0686611
_FIELDS = struct.Struct("=9Q4I2Q")
_KIND = 2 | 8 | 16 | 32
"""Writable, shared, this one or the next, and of a file."""
_END, _INODE, _MAJOR, _MINOR = 4, 8, 9, 10
_LINE = pattern(rb"^\S+ .w.s \S+ (\S+) (\d+)", re.MULTILINE)


def mapped_files(process: str) -> list[tuple[int, int]]:
    """Return the files that a process has mapped for writing, by device and inode; raises OSError."""
    file = f"/proc/{process}/maps"
    if not _can_query():
        return _listed(file)
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return list(_queried(descriptor))
    finally:
        os.close(descriptor)


def _queried(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield what the kernel finds; raises OSError, of which ESRCH says that the process has ended."""
    address = 0
    while True:
        query = bytearray(_FIELDS.pack(_FIELDS.size, _KIND, address, *[0] * 12))
        try:
            fcntl.ioctl(descriptor, _QUERY, query)
        except OSError as error:
            if error.errno == errno.ENOENT:  # no more of them
                return
            raise
        fields = _FIELDS.unpack(query)
        yield os.makedev(fields[_MAJOR], fields[_MINOR]), fields[_INODE]
        address = fields[_END]


@cache
def _can_query() -> bool:
    """Whether the kernel finds mappings by itself; tried out with this process."""
    try:
        descriptor = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        list(_queried(descriptor))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _listed(file: str) -> list[tuple[int, int]]:
    maps = read_plain(file, sys.maxsize)
    if b"w-s " not in maps and b"wxs " not in maps:
        return []  # most have none, and this is quicker to see
    found = []
    for number, inode in _LINE.findall(maps):
        major, _, minor = number.partition(b":")
        found.append((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return found

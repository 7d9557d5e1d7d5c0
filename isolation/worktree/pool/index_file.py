"""What git's index says about a tree without asking git: how many files, how many bytes, which submodules.

Read as gitformat-index documents it, versions 2 to 4.
"""

import struct
from pathlib import Path

from msgspec import Struct

_HEADER = struct.Struct(">4sII")
_FIXED = 40
_EXTENDED = 0x4000
_LONGEST_NAME = 0xFFF
_GITLINK = 0o160000
_COMPRESSED_NAMES = 4
_PADDING = 8


class IndexSummary(Struct, frozen=True, kw_only=True):
    """The files of an index with the bytes they have in the tree, and the submodules."""

    files: int
    submodules: int
    size: int


def summarize(path: Path, hash_size: int = 20) -> IndexSummary:
    """Read an index; raises ValueError if it has another format. Blocks."""
    data = path.read_bytes()
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in {2, 3, _COMPRESSED_NAMES}:
        raise ValueError(f"{path} is not an index of a known version")
    position, submodules, size = _HEADER.size, 0, 0
    read, find = struct.Struct(">24xI8xI").unpack_from, data.index
    try:
        for _ in range(count):
            mode, bytes_ = read(data, position)
            if mode == _GITLINK:
                submodules += 1
            else:
                size += bytes_
            flags_at = position + _FIXED + hash_size
            flags = data[flags_at] << 8 | data[flags_at + 1]
            name = flags_at + (4 if flags & _EXTENDED else 2)
            length = flags & _LONGEST_NAME
            if version == _COMPRESSED_NAMES:
                position = find(b"\0", _after_number(data, name)) + 1
                continue
            end = name + length if length < _LONGEST_NAME else find(b"\0", name)
            position += (end - position) // _PADDING * _PADDING + _PADDING
    except (IndexError, struct.error) as error:
        raise ValueError(f"{path} is truncated") from error
    return IndexSummary(files=count - submodules, submodules=submodules, size=size)


def _after_number(data: bytes, position: int) -> int:
    """Skip the number that says how much of the name before is left out."""
    while data[position] & 0x80:
        position += 1
    return position + 1

"""An index with some files as they are now, so that git finds nothing to do for them."""

import hashlib
import os
import struct
from collections.abc import Mapping

from isolation.git.direct.index_file import entries_of, has_short_names
from isolation.git.plain.trees import Blob, LeftToGitError

_HEADER = struct.Struct(">4sII")
_STAT = struct.Struct(">10I")
_HASH = 20
_LOW = 0xFFFFFFFF
_LONGEST_NAME = 0xFFF
_PADDING = 8


def with_files(data: bytes, files: Mapping[bytes, tuple[Blob, os.stat_result] | None]) -> bytes:
    """Return an index in which these files are as the file system has them, or are gone.

    What git only notes there to be faster is left out. Raises LeftToGitError for an index with short names.
    """
    if has_short_names(data):
        raise LeftToGitError("names are compressed")
    entries: dict[bytes, bytes] = {}
    for position, name in entries_of(data, _HASH):
        length = _STAT.size + _HASH + 2 + len(name)
        entries[name] = data[position : position + length // _PADDING * _PADDING + _PADDING]
    for name, file in files.items():
        if file is None:
            entries.pop(name, None)
        else:
            entries[name] = _entry(name, *file)
    signature, version, _ = _HEADER.unpack_from(data)
    content = _HEADER.pack(signature, version, len(entries)) + b"".join(
        map(entries.__getitem__, sorted(entries))
    )
    if not any(data[-_HASH:]):  # the user's git leaves it out
        return content + bytes(_HASH)
    return content + hashlib.sha1(content, usedforsecurity=False).digest()


def _entry(name: bytes, blob: Blob, found: os.stat_result) -> bytes:
    numbers = (
        *divmod(found.st_ctime_ns, 10**9),
        *divmod(found.st_mtime_ns, 10**9),
        found.st_dev,
        found.st_ino,
        int(blob.mode, 8),
        found.st_uid,
        found.st_gid,
        found.st_size,
    )
    fixed = _STAT.pack(*(number & _LOW for number in numbers)) + blob.id
    entry = fixed + min(len(name), _LONGEST_NAME).to_bytes(2, "big") + name
    return entry + bytes(_PADDING - len(entry) % _PADDING)

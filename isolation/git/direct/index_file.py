"""Git's index without git: what it names, and which of its files are still exactly what git wrote.

Read as gitformat-index documents it, versions 2 to 4. Most builds of git compare times by the second only,
though the index holds them to the nanosecond; here all of it counts.
"""

import hashlib
import os
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from isolation.files.plain import read_plain

_HEADER = struct.Struct(">4sII")
_STAT = struct.Struct(">IIIIIIIIII")
_MODE_AND_SIZE = struct.Struct(">24xI8xI")
_EXTENDED = 0x4000
_LONGEST_NAME = 0xFFF
_GITLINK = 0o160000
_COMPRESSED_NAMES = 4
_PADDING = 8
_LONGEST_NUMBER = 9
_LARGEST = 1 << 28
_LOW = 0xFFFFFFFF
_SECOND = 10**9
_SMALL = 50_000
"""Up to how many bytes the entries of an index are remembered; larger ones are hardly asked for again."""
_SPECIAL_FLAGS = 0xC0
"""Of the first byte of the flags: assumed unchanged, and that there are more flags."""
_KIND_AT = 26
_PLAIN_KINDS = b"\x81\xa0"
"""The byte of the mode that says what an entry is: a file, or a link."""
_SUBMODULE = b"\xe0"
_EXTENSION = struct.Struct(">4sI")
_SPLIT = b"link"
_HASHES = {20: hashlib.sha1, 32: hashlib.sha256}


MOST_RECENT = 1000


class IndexSummary(Struct, frozen=True, kw_only=True):
    """The files of an index with the bytes they have in the tree, and the submodules.

    `recent` are the entries for which `touched` must look at the file, by their positions: they are no older
    than the index itself. None if they are too many, or cannot be found by a position.
    """

    files: int
    submodules: int
    size: int
    recent: tuple[int, ...] | None


def summarize(path: Path, hash_size: int = 20) -> IndexSummary:
    """Read an index; raises ValueError if it has another format. Blocks."""
    count, submodules, size, recent = 0, 0, 0, list[int]()
    data, earliest = path.read_bytes(), _second_of(path)
    unpack = _MODE_AND_SIZE.unpack_from
    for position, _ in entries_of(data, hash_size, named=False):
        count += 1
        mode, length = unpack(data, position)
        if mode == _GITLINK:
            submodules += 1
        else:
            size += length
        if data[position : position + 4] >= earliest:
            recent.append(position)
    findable = len(recent) <= MOST_RECENT and _version(data) != _COMPRESSED_NAMES
    return IndexSummary(
        files=count - submodules,
        submodules=submodules,
        size=size,
        recent=tuple(recent) if findable else None,
    )


def touched(
    path: Path, tree: Path, hash_size: int = 20, recent: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Return which entries are not as git wrote them, by their positions. Blocks.

    Only those that are no older than the index: changes in later seconds are left to git. With `recent` these
    are known already.
    """
    if recent == ():
        return ()
    found, data, top = [], path.read_bytes(), os.fsencode(tree) + b"/"
    earliest = _second_of(path)
    entries = entries_of(data, hash_size) if recent is None else _entries_at(data, recent, hash_size)
    for position, name in entries:
        if data[position : position + 4] < earliest:  # in this order of bytes, as numbers
            continue
        try:
            now = os.lstat(top + name)
        except OSError:
            continue  # git notices that it is gone
        if not is_as_written(data, position, now):
            found.append(position)
    return tuple(found)


def is_as_written(data: bytes, position: int, now: os.stat_result) -> bool:
    """Return whether the file system says of a file what an entry of an index says."""
    changed, changed_ns, written, written_ns, _, inode, _, user, group, size = _STAT.unpack_from(
        data, position
    )
    if not (changed_ns or written_ns):
        return False  # where only seconds are known, a change in the same second leaves no trace here
    return bool(
        now.st_ctime_ns == changed * _SECOND + changed_ns
        and now.st_mtime_ns == written * _SECOND + written_ns
        and now.st_ino & _LOW == inode
        and now.st_size & _LOW == size
        and now.st_uid & _LOW == user
        and now.st_gid & _LOW == group
    )


def identity_of(index: Path | str) -> tuple[int, ...]:
    """Return what changes whenever an index is written, as the file system has it."""
    found = os.lstat(index)
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def distrust(data: bytes, positions: tuple[int, ...], hash_size: int = 20) -> bytes:
    """Return an index by which git writes the files of these entries again."""
    if not positions:
        return data
    changed = bytearray(data)
    for position in positions:
        changed[position : position + 16] = bytes(16)  # both times
    if any(data[-hash_size:]):  # zeros: the user's git leaves it out
        changed[-hash_size:] = _HASHES[hash_size](changed[:-hash_size], usedforsecurity=False).digest()
    return bytes(changed)


def load_index(git_dir: Path | None) -> bytes:
    """Read the index in a git directory that a session can write to; empty if it is none. Blocks."""
    try:
        data = read_plain(f"{git_dir}/index", _LARGEST, follow=False) if git_dir else b""
    except OSError:
        return b""
    return data if len(data) < _LARGEST else b""


def is_plain(data: bytes, hash_size: int = 20, *, submodules: bool = False) -> bool:
    """Return whether an index has files and links only, none of them hidden from git; False may be wrong.

    An entry can be assumed unchanged, left out of the worktree, a submodule or a folder of a sparse index;
    and a split index has further entries in another file. About all of these git can say more. With
    `submodules` it may have these, too.
    """
    try:
        end_of_entries = _end_of_plain(data, hash_size, _PLAIN_KINDS + _SUBMODULE * submodules)
    except (IndexError, ValueError, struct.error):
        return False
    return _SPLIT not in _extensions(data, end_of_entries, len(data) - hash_size)


def has_short_names(data: bytes) -> bool:
    """Return whether each name in an index is only what differs from the one before."""
    return _version(data) == _COMPRESSED_NAMES


def extensions_of(data: bytes, hash_size: int = 20) -> dict[bytes, bytes]:
    """Return what follows the entries of an index, by name; raises ValueError if it has no plain entries."""
    try:
        end = _end_of_plain(data, hash_size, _PLAIN_KINDS + _SUBMODULE)
    except (IndexError, struct.error) as error:
        raise ValueError("the index is truncated") from error
    return _extensions(data, end, len(data) - hash_size)


@lru_cache(maxsize=32)
def _known_end(data: bytes, hash_size: int, kinds: bytes) -> int:
    return _read_plain(data, hash_size, kinds)


def _end_of_plain(data: bytes, hash_size: int, kinds: bytes) -> int:
    """Return where the entries end; raises ValueError at the first that is not plain."""
    return (_known_end if len(data) <= _SMALL else _read_plain)(data, hash_size, kinds)


def _read_plain(data: bytes, hash_size: int, kinds: bytes) -> int:
    version, count = _version(data), _HEADER.unpack_from(data)[2]
    position, before_flags, find = _HEADER.size, _STAT.size + hash_size, data.index
    for _ in range(count):
        flags_at = position + before_flags
        high = data[flags_at]
        if high & _SPECIAL_FLAGS or data[position + _KIND_AT] not in kinds:
            raise ValueError("not a plain entry")
        if version == _COMPRESSED_NAMES:
            position = find(b"\0", _number(data, flags_at + 2)[1]) + 1
            continue
        length = (high & 0xF) << 8 | data[flags_at + 1]
        end = flags_at + 2 + length if length < _LONGEST_NAME else find(b"\0", flags_at + 2)
        position += (end - position) // _PADDING * _PADDING + _PADDING
    return position


def _extensions(data: bytes, position: int, end: int) -> dict[bytes, bytes]:
    """Return what follows the entries, by name."""
    found = {}
    while position + _EXTENSION.size <= end:
        name, size = _EXTENSION.unpack_from(data, position)
        position += _EXTENSION.size + size
        found[name] = data[position - size : position]
    return found


def all_there(data: bytes, tree: Path, hash_size: int = 20) -> bool:
    """Return whether a tree has something for every entry; False also for an unknown format. Blocks.

    Folders are listed as a whole: a look at each file takes four times as long beside other threads.
    """
    top, there = os.fsencode(tree) + b"/", dict[bytes, frozenset[bytes]]()
    try:
        for _, name in entries_of(data, hash_size):
            folder, _, own = name.rpartition(b"/")
            if folder not in there:
                there[folder] = frozenset(os.listdir(top + folder))  # noqa: PTH208  bytes, as the index has them
            if own not in there[folder]:
                return False
    except (OSError, ValueError):
        return False
    return True


def _second_of(path: Path) -> bytes:
    """Return the second in which an index was written, as an index has it."""
    return max(0, min(path.stat().st_mtime_ns // 10**9, _LOW)).to_bytes(4, "big")


def _version(data: bytes) -> int:
    signature, version, _ = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in {2, 3, _COMPRESSED_NAMES}:
        raise ValueError("not an index of a known version")
    return int(version)


def _entries_at(data: bytes, positions: tuple[int, ...], hash_size: int) -> Iterator[tuple[int, bytes]]:
    """Yield these entries of an index whose names are not compressed."""
    for position in positions:
        flags_at = position + _STAT.size + hash_size
        if flags_at + 1 >= len(data):
            raise ValueError("the index is truncated")
        begin = flags_at + (4 if data[flags_at] << 8 & _EXTENDED else 2)
        yield position, data[begin : data.index(b"\0", begin)]


def entries_of(data: bytes, hash_size: int, *, named: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield each entry: its position, where its ten numbers of the file system begin, and its name."""
    return (
        iter(_known_entries(data, hash_size)) if len(data) <= _SMALL else _read(data, hash_size, named=named)
    )


@lru_cache(maxsize=32)
def _known_entries(data: bytes, hash_size: int) -> tuple[tuple[int, bytes], ...]:
    """Read a small index; one story asks for the entries of the same one several times."""
    return tuple(_read(data, hash_size, named=True))


def _read(data: bytes, hash_size: int, *, named: bool) -> Iterator[tuple[int, bytes]]:
    try:
        version, count = _version(data), _HEADER.unpack_from(data)[2]
        position, name = _HEADER.size, b""
        find = data.index
        for _ in range(count):
            flags_at = position + _STAT.size + hash_size
            flags = data[flags_at] << 8 | data[flags_at + 1]
            begin = flags_at + (4 if flags & _EXTENDED else 2)
            if version == _COMPRESSED_NAMES:
                left_out, begin = _number(data, begin)
                end = find(b"\0", begin)
                name = name[: len(name) - left_out] + data[begin:end]
                following = end + 1
            else:
                length = flags & _LONGEST_NAME
                end = begin + length if length < _LONGEST_NAME else find(b"\0", begin)
                following = position + (end - position) // _PADDING * _PADDING + _PADDING
                name = data[begin:end] if named else b""
            yield position, name
            position = following
    except (IndexError, struct.error) as error:
        raise ValueError("the index is truncated") from error


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Read a number of variable length; also return where it ends."""
    value, begin = data[position] & 0x7F, position
    while data[position] & 0x80:
        position += 1
        value = (value + 1) << 7 | data[position] & 0x7F
        if position - begin > _LONGEST_NUMBER:
            raise ValueError("no index has such a number")
    return value, position + 1

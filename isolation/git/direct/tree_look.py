"""What differs between a small worktree and its index, found without a process.

That is certain only while the index is as a checkout or a commit of this program has left it, with nothing
staged since, and while the file system says of each file whether it has been written to. Invariants:

- No session is alive in the tree.
- The clock by which files are stamped had moved on from the index before anybody could write there again. So
  nothing that was written since has the time that the index holds for it.
- What may have changed counts as changed. Whatever is unusual is left to git.
"""

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct

from isolation.git.direct.index_file import entries_of, identity_of, is_as_written, is_plain, load_index
from isolation.paths import EXCHANGE

_LARGEST = 50_000
"""Up to which size of the index a look takes less than a git process: about 500 files."""
_MOST_NAMES = 2000
_STAMPS = getattr(time, "CLOCK_REALTIME_COARSE", 5)
"""The clock by which Linux stamps files: it moves in steps of some milliseconds."""
_STEP_SECONDS = 0.001
_MOST_STEPS = 50
_ID_AT = 40
_STAGES = 0x30
_KIND_AND_ID = slice(24, 28)


class TreeLook(Struct, frozen=True, kw_only=True):
    """The files of the index that may differ or are gone, and what the index does not name.

    Of an unknown folder, only itself is named. What is unknown may be ignored by git. `index` is what was
    compared.
    """

    changed: tuple[str, ...]
    unknown: tuple[str, ...]
    index: bytes


def settled(index: Path | str) -> tuple[int, ...]:
    """Return the identity of an index as soon as nothing can get its time any more; empty if that is unknown.

    Blocks, for a few milliseconds at most.
    """
    try:
        found = identity_of(index)
        for _ in range(_MOST_STEPS):
            if time.clock_gettime_ns(_STAMPS) > found[2]:
                return found
            time.sleep(_STEP_SECONDS)
    except OSError:
        pass
    return ()


def look_at_tree(git_dir: Path, tree: Path, left: tuple[int, ...], hash_size: int) -> TreeLook | None:
    """Compare a tree with its index, as this program `left` that; None if only git can. Blocks."""
    try:
        if not is_small(left) or identity_of(f"{git_dir}/index") != left:
            return None
        data = load_index(git_dir)
    except OSError:
        return None
    return compare_tree(data, tree, hash_size) if is_plain(data, hash_size) else None


def is_small(index: tuple[int, ...]) -> bool:
    """Return whether a look takes less than a git process, by the identity of an index, which is known."""
    return bool(index) and index[1] <= _LARGEST


def compare_tree(data: bytes, tree: Path, hash_size: int) -> TreeLook | None:
    """Compare a tree with an index of plain entries; None if only git can. Blocks."""
    try:
        entries = {name: position for position, name in entries_of(data, hash_size)}
        if any(data[position + _ID_AT + hash_size] & _STAGES for position in entries.values()):
            return None  # a conflict
        same, unknown = _walked(data, entries, os.fsencode(tree))
    except (OSError, ValueError):
        return None
    changed = [name for name in entries if name not in same] if len(same) < len(entries) else []
    return TreeLook(
        changed=tuple(map(os.fsdecode, changed)), unknown=tuple(map(os.fsdecode, unknown)), index=data
    )


def compare_indexes(old: bytes, new: bytes, hash_size: int) -> TreeLook:
    """Compare a tree with an older index, of which only the new one is known to be what it holds."""
    before, after = (
        {
            name: data[position : position + _ID_AT + hash_size]
            for position, name in entries_of(data, hash_size)
        }
        for data in (old, new)
    )
    changed = sorted(name for name, entry in before.items() if after.get(name) != entry)
    unknown = sorted(after.keys() - before.keys())
    return TreeLook(
        changed=tuple(map(os.fsdecode, changed)), unknown=tuple(map(os.fsdecode, unknown)), index=old
    )


def staged_since(before: bytes, git_dir: Path, hash_size: int) -> tuple[str, ...]:
    """Return the paths in which the index differs from what it was; raises ValueError if it is no index."""
    old, new = (_contents(data, hash_size) for data in (before, load_index(git_dir)))
    return tuple(sorted(os.fsdecode(name) for name in {*old, *new} if old.get(name) != new.get(name)))


def _contents(data: bytes, hash_size: int) -> dict[bytes, tuple[bytes, bytes]]:
    """Return the mode and the id of each entry of an index."""
    return {
        name: (
            data[position + _KIND_AND_ID.start : position + _KIND_AND_ID.stop],
            data[position + _ID_AT : position + _ID_AT + hash_size],
        )
        for position, name in entries_of(data, hash_size)
    }


def _walked(data: bytes, entries: Mapping[bytes, int], tree: bytes) -> tuple[set[bytes], list[bytes]]:
    """Return which entries are as they were written, and what a tree has beyond them, by one walk.

    The entries have their positions in the index. Raises ValueError where the tree is for git to judge.
    """
    folders = _folders_of(entries)
    same: set[bytes] = set()
    unknown: list[bytes] = []
    waiting, seen = [(b"", True)], 0
    while waiting:
        prefix, known = waiting.pop()
        with os.scandir(tree + b"/" + prefix) as listed:
            for each in listed:
                name = each.name
                path, seen = prefix + name, seen + 1
                if seen > _MOST_NAMES or (prefix and len(name) == len(_GIT) and name.lower() == _GIT):
                    raise ValueError("too many names, or another repository")
                is_known = False
                if each.is_dir(follow_symlinks=False):
                    if path == _GIT or (path == _EXCHANGE and path not in folders):
                        continue
                    is_known = path in folders
                    waiting.append((path + b"/", is_known))
                elif path in entries:
                    if is_as_written(data, entries[path], each.stat(follow_symlinks=False)):
                        same.add(path)
                    continue
                elif path in {_GIT, _EXCHANGE}:
                    continue
                if known and not is_known:
                    unknown.append(path)
    return same, sorted(unknown)


def _folders_of(names: Collection[bytes]) -> set[bytes]:
    """Return all folders above these names."""
    found: set[bytes] = set()
    left = {name.rpartition(b"/")[0] for name in names}
    while left:
        found |= left
        left = {folder.rpartition(b"/")[0] for folder in left} - found
    return found - {b""}


_GIT, _EXCHANGE = b".git", os.fsencode(EXCHANGE)

"""The trees of a commit, built from an index: one that differs in a few paths needs few new objects.

An index holds all files of a commit, and git notes there which tree each folder is. So the tree of a folder
in which nothing changes is known, or its id can be computed. Only those on the way to a change are written.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import NamedTuple

from isolation.git.direct.index_file import entries_of, extensions_of
from isolation.git.plain.objects import object_id

_TREE_MODE = b"40000"
_HASH = 20
_ID_AT = 40
_MODE_AT = 24
_STAGES = 0x30
_TREES = b"TREE"

Add = Callable[[bytes, bytes], bytes]
"""Makes an object of a kind, and returns its id."""


class Blob(NamedTuple):
    """A file of a tree: its mode, in octal digits as trees have it, and its id."""

    mode: bytes
    id: bytes


class LeftToGitError(ValueError):
    """Something is so unusual that git has to do it."""


class IndexTrees:
    """The files of an index in order, and the trees of their folders."""

    def __init__(self, data: bytes) -> None:
        """Read an index without conflicts; raises ValueError if it has another format."""
        self._data = data
        entries = list(entries_of(data, _HASH))
        if any(data[position + _ID_AT + _HASH] & _STAGES for position, _ in entries):
            raise LeftToGitError("a conflict")
        self.paths = [name for _, name in entries]
        self._positions = [position for position, _ in entries]
        self._known = _known_trees(data)

    def get(self, path: bytes) -> Blob | None:
        """Return the file at a path."""
        here = bisect_left(self.paths, path)
        return self._blob(here) if self.paths[here : here + 1] == [path] else None

    @property
    def blobs(self) -> list[Blob]:
        """All files, in the order of their paths."""
        return [self._blob(number) for number in range(len(self.paths))]

    def _blob(self, number: int) -> Blob:
        """Return a file by its number; only the few in the folders of a change are asked for."""
        position = self._positions[number]
        mode = int.from_bytes(self._data[position + _MODE_AT : position + _MODE_AT + 4], "big")
        return Blob(b"%o" % mode, self._data[position + _ID_AT : position + _ID_AT + _HASH])

    def changed(self, changes: Mapping[bytes, Blob | None], add: Add) -> bytes:
        """Return the tree with some files as they are given, or gone; the trees that are new are added."""
        return self._tree(b"", changes, add) or add(b"tree", b"")

    def _tree(self, prefix: bytes, changes: Mapping[bytes, Blob | None], add: Add) -> bytes:
        """Return the tree of a folder, whose name ends with a slash; empty if nothing is left in it."""
        if not changes and prefix in self._known:
            return self._known[prefix]
        here, below = self._here(prefix)
        changed_below: dict[bytes, dict[bytes, Blob | None]] = {}
        for path, blob in changes.items():
            name, slash, _ = path[len(prefix) :].partition(b"/")
            if slash:
                changed_below.setdefault(name, {})[path] = blob
            elif blob is None:
                here.pop(name, None)
            else:
                here[name] = blob
        entries = {name: _entry(blob.mode, name, blob.id) for name, blob in here.items()}
        for name in {*below, *changed_below}:
            tree = self._tree(prefix + name + b"/", changed_below.get(name, {}), add)
            if tree and name in here:
                raise LeftToGitError("a folder where a file is")
            if tree:
                entries[name + b"/"] = _entry(_TREE_MODE, name, tree)  # the slash counts in the order
        if not entries:
            return b""
        content = b"".join(entries[name] for name in sorted(entries))
        return add(b"tree", content) if changes else object_id(b"tree", content)

    def _here(self, prefix: bytes) -> tuple[dict[bytes, Blob], set[bytes]]:
        """Return the files in a folder, and the names of the folders in it."""
        files: dict[bytes, Blob] = {}
        folders: set[bytes] = set()
        at = bisect_left(self.paths, prefix)
        while at < len(self.paths) and self.paths[at].startswith(prefix):
            name, slash, _ = self.paths[at][len(prefix) :].partition(b"/")
            if slash:
                folders.add(name)
                at = bisect_left(self.paths, prefix + name + b"0", at)  # the byte after the slash
            else:
                files[name] = self._blob(at)
                at += 1
        return files, folders


def _entry(mode: bytes, name: bytes, id_: bytes) -> bytes:
    return b"%b %b\0%b" % (mode, name, id_)


def _known_trees(data: bytes) -> dict[bytes, bytes]:
    """Return the trees that an index names, by folder; git leaves out those in which something was staged."""
    known: dict[bytes, bytes] = {}
    text = extensions_of(data).get(_TREES, b"")
    if text:
        _read_tree(text, 0, b"", known)
    return known


def _read_tree(text: bytes, position: int, above: bytes, known: dict[bytes, bytes]) -> int:
    """Read a folder and all below it; return where that ends."""
    end_of_name = text.index(b"\0", position)
    end_of_numbers = text.index(b"\n", end_of_name)
    name = text[position:end_of_name]
    files, folders = map(int, text[end_of_name + 1 : end_of_numbers].split())
    folder = above + name + b"/" if name else above
    position = end_of_numbers + 1
    if files >= 0:
        known[folder] = text[position : position + _HASH]
        position += _HASH
    for _ in range(folders):
        position = _read_tree(text, position, folder, known)
    return position

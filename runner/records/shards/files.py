"""The files of a shard, read without trust: plain files inside its folder, with the size and digest expected.

A size is compared before a byte is read, and nothing is waited for, so that neither a huge file nor a pipe
in its place holds up the job that joins.
"""

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

MOST_PARSED = 256 << 20
"""The largest file, in bytes, that is read into memory to be parsed."""

MOST_STORED = 4 << 30
"""The largest file, in bytes, that a shard may hold: a bundle, or a log of an older version."""

_SMALL = 1 << 18
"""A file of this size is read in one piece, which costs less than the buffer for several."""
_HEADER = 1 << 20
_SIGNATURES = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_REFS = "refs/heads/"


class TornError(ValueError):
    """A file is lost, or is not what was written; the rest of the shard may say whose it is."""


class Entry(Struct, frozen=True, kw_only=True):
    """One file of a shard according to its manifest."""

    size: int
    sha256: str


def safe_name(name: str) -> str:
    """Return the name of a file; raise ValueError if it leads out of the shard."""
    parts = name.split("/")
    if not name or {"", ".", ".."} & set(parts) or "\\" in name or not name.isprintable():
        raise ValueError(f"a file cannot be called {name!r}")
    return name


def read_small(folder: Path, name: str) -> bytes:
    """Read a whole file that no manifest describes; raise ValueError if it is too large."""
    with _opened(folder, name) as file:
        if os.fstat(file.fileno()).st_size > MOST_PARSED:
            raise ValueError(f"{name} is larger than {MOST_PARSED >> 20} MiB")
        return file.read()


def read_checked(folder: Path, name: str, entry: Entry) -> bytes:
    """Read a whole file; raise ValueError unless it is what the manifest says."""
    _require_size(name, entry, MOST_PARSED)
    with _opened(folder, name) as file:
        if os.fstat(file.fileno()).st_size != entry.size:
            raise _differs(name)
        data = file.read()
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise _differs(name)
    return data


def require_intact(folder: Path, name: str, entry: Entry) -> None:
    """Raise ValueError unless a file is what the manifest says; reads a large one in pieces."""
    _require_size(name, entry, MOST_STORED)
    with _opened(folder, name) as file:
        if os.fstat(file.fileno()).st_size != entry.size:
            raise _differs(name)
        found = hashlib.sha256(file.read()) if entry.size <= _SMALL else hashlib.file_digest(file, "sha256")
        if found.hexdigest() != entry.sha256:
            raise _differs(name)


def branches_in_bundle(folder: Path, name: str) -> dict[str, str]:
    """Return the tips of the branches in a bundle, from its header; raise ValueError if there is none.

    Git is not needed for that, so shards can be checked where there is no repository.
    """
    with _opened(folder, name) as file:
        head = file.read(_HEADER)
    if not head.startswith(_SIGNATURES):
        raise ValueError(f"{name} is not a git bundle")
    header, end, _ = head.partition(b"\n\n")
    if not end:
        raise ValueError(f"{name} has no end of its header")
    found = {}
    for line in header.decode("utf-8", "replace").splitlines()[1:]:
        if line.startswith(("-", "@")):
            continue
        tip, _, ref = line.partition(" ")
        if not ref.startswith(_REFS):
            raise ValueError(f"{name} holds {ref!r}, which is not a branch")
        found[ref.removeprefix(_REFS)] = tip
    return found


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[io.FileIO]:
    try:
        # A folder on the way may be a link that leads elsewhere; the last part is refused by NOFOLLOW.
        if "/" in name and _is_below_link(folder, name) and not _is_inside(folder, name):
            raise ValueError(f"{name} is outside the shard")
        place = os.path.join(folder, name)  # noqa: PTH118  a shard has many files, and paths are slow to make
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise TornError(f"{name} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{name} cannot be read: it is not a plain file")
    with io.FileIO(descriptor) as file:
        yield file


def _is_below_link(folder: Path, name: str) -> bool:
    """Whether a folder between a shard and one of its files is a link."""
    parent = os.path.dirname(name)  # noqa: PTH120
    while parent:
        if os.path.islink(os.path.join(folder, parent)):  # noqa: PTH114, PTH118
            return True
        parent = os.path.dirname(parent)  # noqa: PTH120
    return False


def _is_inside(folder: Path, name: str) -> bool:
    place = folder.resolve()
    return (place / name).parent.resolve().is_relative_to(place)


def _require_size(name: str, entry: Entry, most: int) -> None:
    if entry.size > most:
        raise ValueError(f"{name} is larger than {most >> 20} MiB")


def _differs(name: str) -> TornError:
    return TornError(f"{name} differs from the file that was written")

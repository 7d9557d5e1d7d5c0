"""Data from files, connections and the journal as objects of a class, in any thread.

msgspec finds out about a class when it is first asked for it, and lets other threads run meanwhile. One that
meets what is only half found out crashes the whole process (seen with msgspec 0.22, in a worker of a
cluster). So one thread after the other finds out, and a class is never asked for anywhere else.
"""

from threading import Lock
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_finding_out = Lock()
_known: set[Any] = set()


def known(kind: T) -> T:
    """Return the same class, or type; from now on any thread may make objects of it."""
    if kind not in _known:
        with _finding_out:
            msgspec.msgpack.Decoder(kind)  # which finds out
            _known.add(kind)
    return kind


def from_json(data: bytes, kind: type[T]) -> T:
    """Read JSON; raises ValueError for anything else than such an object."""
    return msgspec.json.decode(data, type=known(kind))


def from_msgpack(data: bytes, kind: type[T]) -> T:
    """Read MessagePack; raises ValueError for anything else than such an object."""
    return msgspec.msgpack.decode(data, type=known(kind))


def from_values(values: object, kind: type[T], *, strict: bool = True) -> T:
    """Make an object of plain values; raises ValueError for values that such an object cannot have."""
    return msgspec.convert(values, known(kind), strict=strict)

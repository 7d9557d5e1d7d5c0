"""Reads many state files, wherever they are: what each holds, or what is wrong with it.

Read-only: nothing is copied or corrected. With a cache, a file that has not changed is not read again.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from runner.flows.state.errors import UnreadableStateError
from runner.flows.state.model import StateFile
from runner.flows.state.reading import decode, parse_state
from runner.flows.state.vocabulary import STANDARD, Vocabulary

_RACY = 2_000_000_000
"""Nanoseconds within which a file may change again without a new time stamp."""

_CHUNK = 1 << 16


class Found(Struct, frozen=True, kw_only=True):
    """One path: its state, or why there is none."""

    path: Path
    state: StateFile | None = None
    problem: str = ""


Stamp = tuple[int, int, int]
Cache = dict[Path, tuple[Stamp, Found]]


def collect(
    paths: Iterable[Path], *, vocabulary: Vocabulary = STANDARD, cache: Cache | None = None
) -> list[Found]:
    """Read every file, in the order given."""
    if cache is None:
        return [_read(path, vocabulary) for path in paths]
    now = time.time_ns()
    found = []
    for path in paths:
        stamp = _stamp(path)
        known = cache.get(path)
        if known is None or stamp is None or known[0] != stamp:
            known = (stamp or (0, 0, 0), _read(path, vocabulary))
            if stamp is not None and now - stamp[0] > _RACY:
                cache[path] = known
        found.append(known[1])
    return found


def _read(path: Path, vocabulary: Vocabulary) -> Found:
    try:
        data = _content(path)
        return Found(path=path, state=parse_state(decode(data), vocabulary=vocabulary))
    except OSError as error:
        return Found(path=path, problem=f"cannot be read: {error.strerror or error}")
    except UnreadableStateError as error:
        return Found(path=path, problem=error.message)


def _content(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, _CHUNK)
        if len(data) < _CHUNK:
            return data
        parts = [data]
        while part := os.read(descriptor, _CHUNK):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _stamp(path: Path) -> Stamp | None:
    try:
        stat = os.stat(path)  # noqa: PTH116  twice as fast, a thousand times
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino

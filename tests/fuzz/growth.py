"""Adds to the corpus what a campaign has found: only small inputs that reach lines no other input does."""

import contextlib
import hashlib
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.registry import CORPUS, Target

_ROOT = Path(__file__).parents[2]
_OWN = (str(_ROOT / "runner"), str(_ROOT / "isolation"))
_LONGEST = 2048
_MOST_ADDED = 12

Lines = set[tuple[str, int]]


@contextlib.contextmanager
def tracing(lines: Lines) -> Any:
    """Collect the lines of the product that are reached."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(_OWN):
            return None
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def reached(target: Target, data: bytes) -> Lines:
    """Return the lines that an input reaches."""
    lines: Lines = set()
    with tracing(lines), contextlib.suppress(Exception):
        target.check(data)
    return lines


def grow(target: Target, found: Path, corpus: Path = CORPUS) -> list[Path]:
    """Copy what reaches something new, the shortest first; return the new files."""
    known: Lines = set()
    for sample in target.samples:
        known |= reached(target, sample.read_bytes())
    added: list[Path] = []
    inputs = (path.read_bytes() for path in found.iterdir() if path.stat().st_size <= _LONGEST)
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        lines = reached(target, data)
        if not lines <= known:
            known |= lines
            path = corpus / target.name / hashlib.sha256(data).hexdigest()[:12]
            path.write_bytes(data)
            added.append(path)
        if len(added) == _MOST_ADDED:
            break
    return added

"""The list of deviations in the STATE.md of other session managers: a line when a run works beside a session.

Everything else in the file stays as it is, byte for byte; the file is replaced whole. Without such a file,
nothing is written.
"""

import os
import stat
import threading
from pathlib import Path

from isolation.files.disk import replace_file
from isolation.patterns import pattern
from runner.core.text.instants import iso
from runner.core.text.names import one_line

STATE_FILES = (".claude/STATE.md", ".codex/STATE.md", ".cursor/STATE.md", ".pi/STATE.md")
"""Where the file may be; the first that exists counts."""

_TRIES = 20
_ONE_AT_A_TIME = threading.Lock()  # a repository has one run, so that one process is enough
_HEADING = pattern(rb"## +Deviations\b")
_NEXT = pattern(rb"## ")
_ITEM = pattern(rb"\s*- ")
_EMPTY = pattern(rb"\s*[_*]?\(none yet\)[_*]?\s*")


def append_deviation(top: Path, text: str, at: float) -> None:
    """Append a deviation to the state file of a checkout, unless it is there. Blocking.

    Several stories may append at the same time. If another program replaces the file meanwhile, its version
    is read again.
    """
    with _ONE_AT_A_TIME:
        _append(top, text, at)


def _append(top: Path, text: str, at: float) -> None:
    found = next((path for name in STATE_FILES if (path := top / name).is_file()), None)
    if found is None:
        return
    path = found.resolve()  # a link to the file stays a link
    line = one_line(text)
    for _ in range(_TRIES):
        before = path.stat()
        content = path.read_bytes()
        if line.encode() in content:
            return
        after = with_deviation(content, f"- [{iso(at)}] {line}".encode())
        if os.path.samestat(before, now := path.stat()) and before.st_mtime_ns == now.st_mtime_ns:
            break
    replace_file(path, after, mode=stat.S_IMODE(before.st_mode))


def with_deviation(content: bytes, item: bytes) -> bytes:
    """Return the file with one more item at the end of its section, which is made if it is missing."""
    end = b"\r\n" if b"\r\n" in content else b"\n"
    lines = content.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines, 1) if _HEADING.match(line)), None)
    if first is None:
        gap = b"" if not content or content.endswith((b"\n", b"\r")) else end
        return content + gap + end + b"## Deviations" + end + end + item + end
    last = next((n for n in range(first, len(lines)) if _NEXT.match(lines[n])), len(lines))
    for number in range(first, last):
        if _EMPTY.fullmatch(lines[number]):
            return b"".join((*lines[:number], item + end, *lines[number + 1 :]))
    items = [number for number in range(first, last) if _ITEM.match(lines[number])]
    if items:
        at = items[-1] + 1
        while at < last and lines[at].strip() and not lines[at].startswith(b"#"):
            at += 1  # an item may have further lines
        whole = lines[at - 1].endswith((b"\n", b"\r"))
        return b"".join((*lines[:at], b"" if whole else end, item + end, *lines[at:]))
    whole = lines[first - 1].endswith((b"\n", b"\r"))
    blank = first < last and not lines[first].strip()
    at = first + 1 if blank else first
    gap = (b"" if whole else end) + (b"" if blank else end)
    rest = lines[at:]
    after = end if rest and rest[0].strip() else b""
    return b"".join((*lines[:at], gap, item + end, after, *rest))

"""What a session prints, on disk: every byte except secrets up to a cap, then the last part of the rest.

Memory is bounded by the tail that is kept, however much a session prints.
"""

from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from isolation.files import disk
from runner.core.text.redaction import RedactedStream, Redactor

TAIL_BYTES = 1 << 20


class SessionLog:
    """Writes the first `cap` bytes line by line, and at the close the newest bytes beyond them."""

    def __init__(self, path: Path, *, cap: int, redactor: Redactor | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._room = max(0, cap - TAIL_BYTES)
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0
        self._stream = RedactedStream(redactor or Redactor())
        self.bytes_seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, chunk: bytes) -> None:
        """Write a chunk; never keeps more than a tail in memory."""
        self.bytes_seen += len(chunk)
        self._write(self._stream.feed(chunk))

    def _write(self, chunk: bytes) -> None:
        head = chunk[: self._room]
        if head:
            self._file.write(head)
            self._room -= len(head)
        rest = chunk[len(head) :]
        if rest:
            self._keep(rest)

    def close(self) -> None:
        """Write the tail behind a marker, if the cap was passed."""
        self._write(self._stream.rest())
        if self._tail:
            marker = f"\n[autopilot-multi: {self._dropped} bytes left out here; the log is capped]\n"
            self._file.write(marker.encode() if self._dropped else b"")
            for chunk in self._tail:
                self._file.write(chunk)
            self._tail.clear()
        self._file.close()

    def _keep(self, chunk: bytes) -> None:
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        while self._tail_size - len(self._tail[0]) >= TAIL_BYTES:
            oldest = self._tail.popleft()
            self._tail_size -= len(oldest)
            self._dropped += len(oldest)


def read_tail(path: Path, size: int) -> str:
    """Read the last `size` bytes of a log as text; an absent log is empty."""
    return disk.read_tail(path, size).decode("utf-8", "replace")

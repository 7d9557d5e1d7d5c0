"""A log file that is printed while it is still being written, as text or as it is."""

import sys
from collections.abc import Iterator
from pathlib import Path

from runner.core.text.screen import neutral

CHUNK_BYTES = 1 << 16


class GrowingLog:
    """A log file that is still being written; keeps an unfinished line, in bounded memory."""

    def __init__(self, path: Path, *, raw: bool) -> None:
        self._path = path
        self._raw = raw
        self._offset = 0
        self._held = b""

    def print_new(self, *, last: bool) -> None:
        """Print what was added since the last call; an unfinished line only if nothing more will come."""
        for chunk in self._chunks():
            if self._raw:
                sys.stdout.buffer.write(chunk)
                continue
            *lines, self._held = (self._held + chunk).split(b"\n")
            # A session may print megabytes without a line break.
            if len(self._held) > CHUNK_BYTES:
                lines, self._held = [*lines, self._held], b""
            for line in lines:
                sys.stdout.write(neutral(line.decode("utf-8", "replace")) + "\n")
        if last and self._held:
            sys.stdout.write(neutral(self._held.decode("utf-8", "replace")) + "\n")
            self._held = b""
        sys.stdout.flush()

    def _chunks(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as log:
                log.seek(self._offset)
                while chunk := log.read(CHUNK_BYTES):
                    self._offset += len(chunk)
                    yield chunk
        except FileNotFoundError:  # the session has started, but has not printed anything
            return

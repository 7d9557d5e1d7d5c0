"""A session's log as a conversation: entries from the lines of a file that may still grow.

What is read depends on the bytes alone, never on how they arrived. `offset` is where to continue later: it
is moved only past lines whose entries were all returned. Memory is bounded: of a line that is too long,
only its length is kept.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from runner.agents.acp.agent import render as render_acp
from runner.agents.catalog import KNOWN
from runner.agents.command import CommandAgent
from runner.core.agent_settings import AgentSettings
from runner.core.conversation.entry import MOST_DETAIL, Entry, Kind, safe

Render = Callable[[bytes], tuple[Entry, ...] | None]

MAX_LINE = 4 << 20
_CHUNK = 1 << 16


def renderer_of(agent: str) -> Render:
    """Return how to read the lines of an agent; one that the user has described may print any known format.

    A command's output is its own: it is text, whatever it looks like.
    """
    if not agent or agent == CommandAgent.name:
        return lambda _line: None
    names = [agent] if agent in KNOWN else list(KNOWN)
    ways: list[Render] = [render_acp, *(KNOWN[name](AgentSettings()).render for name in names)]

    def render(line: bytes) -> tuple[Entry, ...] | None:
        # Aider's format is text, which only its own sessions are known to print.
        known = ways if agent in KNOWN or line.startswith(b"{") else []
        return next((shown for way in known if (shown := way(line)) is not None), None)

    return render


class LogReader:
    """Reads a log from `offset` on; each call of `entries` continues where the one before has ended."""

    def __init__(self, path: Path, agent: str, offset: int = 0) -> None:
        self._path = path
        self._render = renderer_of(agent)
        self._held: Entry | None = None
        self._next = offset
        self.offset = offset

    def entries(self, *, last: bool = False) -> Iterator[Entry]:
        """Return what was added; with `last` also an unfinished line, as nothing more will come."""
        for line, end in self._lines(last=last):
            shown = self._render(line)
            if shown is None:
                shown = (Entry(kind=Kind.TEXT, text=line.decode("utf-8", "replace")),)
            for entry in shown:
                yield from self._joined(entry)
            self._next = end
            if self._held is None:
                self.offset = end
        if last and self._held is not None:
            yield safe(self._held)
            self._held, self.offset = None, self._next

    def _joined(self, entry: Entry) -> Iterator[Entry]:
        """Hold back a message that comes in parts until something else follows."""
        held = self._held
        if held is not None and entry.continues and len(held.text) < MOST_DETAIL:
            self._held = replace(held, text=held.text + entry.text)
            return
        self._held = None
        if held is not None:
            self.offset = self._next
            yield safe(held)
        if entry.continues:
            self._held = entry
        else:
            yield safe(entry)

    def _lines(self, *, last: bool) -> Iterator[tuple[bytes, int]]:
        """Return the complete lines, each with the offset after it; one that is too long as a remark."""
        at, held, length = self._next, bytearray(), 0
        try:
            with self._path.open("rb") as log:
                log.seek(at)
                while chunk := log.read(_CHUNK):
                    *ends, rest = chunk.split(b"\n")
                    for piece in ends:
                        length += len(piece)
                        at += length + 1
                        yield self._whole(held + piece, length), at
                        held, length = bytearray(), 0
                    length += len(rest)
                    held += rest if len(held) <= MAX_LINE else b""
        except OSError:  # it has not printed anything, or the log was deleted
            return
        if last and length:
            yield self._whole(held, length), at + length

    @staticmethod
    def _whole(line: bytearray, length: int) -> bytes:
        return bytes(line) if length <= MAX_LINE else f"… a line of {length:,} bytes".encode()

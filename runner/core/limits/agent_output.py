"""What an agent says of itself on its output, line by line, and what that adds up to.

Memory is bounded whatever comes: lines that are too long are left out, the rest is folded as it arrives.
Nothing said here proves anything; it shows progress, tells life from silence and names errors.
"""

from enum import StrEnum

from msgspec import Struct, field

from runner.core.model import Usage

MAX_LINE = 4 << 20
LONGEST_TOOL = 2 * 3600.0
"""A tool that has been open for longer than this is no sign of life any more."""


class Fault(StrEnum):
    """Why a session failed for no reason of its work."""

    TRANSIENT = "transient"
    LIMIT = "limit"
    PERMANENT = "permanent"
    LOST = "lost"
    """The conversation to be resumed is not there, or too long to go on."""


class Final(Struct, frozen=True, kw_only=True):
    """An agent's last word; without a fault a failure is the work's own. `until` is a time of day."""

    ok: bool
    words: str = ""
    fault: Fault | None = None
    until: float = 0.0
    denied: tuple[str, ...] = ()


class AgentUpdate(Struct, frozen=True, kw_only=True):
    """What one line tells; empty and None are nothing. `begun` and `ended` are ids of tool uses."""

    conversation: str = ""
    begun: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    message: str = ""
    usage: Usage | None = None
    retry_seconds: float | None = None
    resets_at: float = 0.0
    final: Final | None = None


class Tally(Struct):
    """All that a session has told so far; with `sums` each usage is added, else the newest counts."""

    sums: bool = False
    conversation: str = ""
    message: str = ""
    uses: int = 0
    usage: Usage = field(default_factory=Usage)
    final: Final | None = None
    resets_at: float = 0.0
    _open: dict[str, float] = field(default_factory=dict)
    _retries_at: float = 0.0

    def add(self, seen: AgentUpdate, at: float) -> None:
        """Take what one line told, at a time of any clock that only rises."""
        for tool in seen.begun:
            self.uses += tool not in self._open
            self._open[tool] = at
        for tool in seen.ended:
            # One that was never seen to begin was short.
            self.uses += self._open.pop(tool, None) is None
        self.conversation = seen.conversation or self.conversation
        self.message = seen.message or self.message
        self.resets_at = seen.resets_at or self.resets_at
        if seen.usage is not None:
            self.usage = self.usage + seen.usage if self.sums else seen.usage
        self._retries_at = at + seen.retry_seconds if seen.retry_seconds else 0.0
        self.final = seen.final or self.final

    def forget_tools(self) -> None:
        """Call no tool open any more, since the line that ended one may have been left out."""
        self._open.clear()

    def busy(self, at: float) -> bool:
        """Tell whether silence is no wonder: a tool is open, or it waits to ask its service again."""
        return at < self._retries_at or any(at - begun < LONGEST_TOOL for begun in self._open.values())


class LineSplitter:
    """Splits a stream into lines; one that is longer than the limit is left out and counted."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._held = bytearray()
        self._skipping = False
        self.left_out = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and give the lines that they complete."""
        first, *others = chunk.split(b"\n")
        self._hold(first)
        if not others:
            return []
        lines = [] if self._skipping else [bytes(self._held)]
        self._held.clear()
        self._skipping = False
        self._hold(others.pop())
        return lines + others

    def rest(self) -> bytes:
        """Give what stands after the last line break."""
        return bytes(self._held)

    def _hold(self, piece: bytes) -> None:
        if self._skipping:
            return
        if len(self._held) + len(piece) > self._limit:
            self._held.clear()
            self._skipping = True
            self.left_out += 1
            return
        self._held += piece


def since(total: Usage, before: Usage) -> Usage:
    """Give one session's part of what its whole conversation has used."""
    return Usage(
        input_tokens=_less(total.input_tokens, before.input_tokens),
        output_tokens=_less(total.output_tokens, before.output_tokens),
        cached_tokens=_less(total.cached_tokens, before.cached_tokens),
        cost_usd=total.cost_usd,
    )


def _less(total: int | None, before: int | None) -> int | None:
    if total is None or before is None or before > total:
        return total  # a smaller total was counted anew
    return total - before

"""What an agent reports on its output, line by line, and what that adds up to.

Memory is bounded whatever arrives: lines that are too long are dropped, the rest is folded immediately.
None of it proves that work was done; it shows progress, tells life from silence and names errors.
"""

from enum import StrEnum
from typing import TypeVar

from msgspec import Struct, field

from runner.core.limits.context_zone import ContextCount, ToolResult
from runner.core.model import Usage

_N = TypeVar("_N", int, float)
MAX_LINE = 4 << 20
MAX_SAID = 10_000
LONGEST_TOOL = 2 * 3600.0
"""A tool that has been open for longer than this no longer counts as a sign of life."""


class Fault(StrEnum):
    """Why a session failed for a reason other than its work."""

    TRANSIENT = "transient"
    LIMIT = "limit"
    PERMANENT = "permanent"
    LOST = "lost"
    """The conversation to be resumed does not exist, or no request in it can succeed any more."""
    SPENT = "spent"
    """It has used up what it was allowed to spend; whether the run has more, the run knows."""


class Final(Struct, frozen=True, kw_only=True):
    """An agent's final result; a failure without a fault is due to the work. `until` is a time of day."""

    ok: bool
    message: str = ""
    fault: Fault | None = None
    until: float = 0.0
    denied: tuple[str, ...] = ()


class AgentUpdate(Struct, frozen=True, kw_only=True):
    """What one line reports; empty and None mean nothing. `begun` and `ended` are ids of tool uses.

    `reads` are tool uses, each with a file that it reads; `results` say how tool uses ended. `nested`: this
    is about the conversation of a helper, not about the session's own. `said` is all that it says to
    the user, or with `continues` a further part of it. `whole_thread`: the usage covers the whole
    conversation, earlier sessions included.
    """

    conversation: str = ""
    begun: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    reads: tuple[tuple[str, str], ...] = ()
    results: tuple[ToolResult, ...] = ()
    nested: bool = False
    message: str = ""
    said: str = ""
    continues: bool = False
    usage: Usage | None = None
    whole_thread: bool = False
    retry_seconds: float | None = None
    resets_at: float = 0.0
    final: Final | None = None


class Tally(Struct):
    """All that a session has reported so far; with `sums` usages are added, else the newest counts.

    `at_end`: nothing was reported since its final result.
    """

    sums: bool = False
    conversation: str = ""
    message: str = ""
    said: str = ""
    uses: int = 0
    usage: Usage = field(default_factory=Usage)
    whole_thread: bool = False
    final: Final | None = None
    at_end: bool = False
    resets_at: float = 0.0
    context: ContextCount = field(default_factory=ContextCount)
    _open: dict[str, float] = field(default_factory=dict)
    _retries_at: float = 0.0

    def add(self, seen: AgentUpdate, at: float) -> None:
        """Add what one line reported, at a time of any monotonic clock."""
        before = self.uses
        for tool in seen.begun:
            self.uses += tool not in self._open
            self._open[tool] = at
        for tool in seen.ended:
            # An agent may report a tool only when it ends.
            self.uses += self._open.pop(tool, None) is None
        if not seen.nested:
            self.context.add(tools=self.uses - before, reads=seen.reads, results=seen.results)
        self.conversation = seen.conversation or self.conversation
        self.message = seen.message or self.message
        if seen.begun or (seen.said and not seen.nested):
            earlier = self.said[-MAX_SAID:] if seen.continues else ""
            # What it says before it uses a tool is not the end.
            self.said = "" if seen.begun else earlier + seen.said
        self.resets_at = seen.resets_at or self.resets_at
        if seen.usage is not None:
            self.usage = self.usage + seen.usage if self.sums else seen.usage
            self.whole_thread = seen.whole_thread
        # Any line without an announcement means that the wait is over.
        self._retries_at = at + seen.retry_seconds if seen.retry_seconds else 0.0
        self.final = seen.final or self.final
        self.at_end = seen.final is not None

    def forget_tools(self) -> None:
        """Consider no tool open, since the line that ended one may have been dropped."""
        self._open.clear()

    def busy(self, at: float) -> bool:
        """Return whether silence is expected: a tool is open, or the agent waits to retry its service."""
        return at < self._retries_at or self.in_tool(at)

    def in_tool(self, at: float) -> bool:
        """Return whether a tool is open."""
        return any(at - begun < LONGEST_TOOL for begun in self._open.values())


class LineSplitter:
    """Splits a stream into lines; a line that is longer than the limit is dropped and counted."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._held = bytearray()
        self._skipping = False
        self.dropped = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Append the next bytes and return the lines that they complete."""
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
        """Return what follows the last line break."""
        return bytes(self._held)

    def _hold(self, piece: bytes) -> None:
        if self._skipping:
            return
        if len(self._held) + len(piece) > self._limit:
            self._held.clear()
            self._skipping = True
            self.dropped += 1
            return
        self._held += piece


def since(total: Usage, before: Usage) -> Usage:
    """Return one session's part of what its whole conversation has used."""
    return Usage(
        input_tokens=_less(total.input_tokens, before.input_tokens),
        output_tokens=_less(total.output_tokens, before.output_tokens),
        cached_tokens=_less(total.cached_tokens, before.cached_tokens),
        cost_usd=_less(total.cost_usd, before.cost_usd),
    )


def _less(total: _N | None, before: _N | None) -> _N | None:
    if total is None or before is None or before > total:
        return total  # a smaller total means that the count was restarted
    # Differences of dollars have digits that no price has.
    return round(total - before, 9)

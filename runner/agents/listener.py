"""Follows the output of a running agent, and keeps what it has reported so far."""

import re
from collections import deque
from pathlib import Path

from isolation.patterns import pattern
from runner.agents import faults
from runner.agents.known_agent import KnownAgent
from runner.agents.protocol import Agent, Traits
from runner.core.limits.agent_output import Fault, Final, LineSplitter, Tally, since
from runner.core.model import Usage
from runner.core.text.screen import neutral

_LONGEST_COMPLAINT = 500
_LONGEST_QUESTION = 2000
_ASKS = pattern(
    r"\?[\"'*_`)\]]*\s*$|\?\s+(?:please|kindly|let me know|tell me|reply|answer|confirm|once you|waiting|"
    r"i (?:will|am going to) (?:wait|continue|proceed)|i.ll (?:wait|continue|proceed))\b[^?\n]{0,300}$",
    re.IGNORECASE,
)
"""A question at the end, or one after which it only says that it waits for the answer."""
_RECALLED = 20
"""How many of its newest lines the next attempt can read."""


class OutputListener:
    """Follows one session's output; for a program whose lines carry no information it costs nothing."""

    def __init__(self, agent: Agent | None = None) -> None:
        self._agent = agent
        self._lines = LineSplitter()
        self._dropped = 0
        self._complaint = ""
        self._recent: deque[str] = deque(maxlen=_RECALLED)
        self.traits = agent.traits if agent else Traits()
        self.tally = Tally(sums=self.traits.sums)

    def feed(self, chunk: bytes, at: float) -> None:
        """Process the next bytes, at a time of the caller's clock."""
        if self._agent is None or not self.traits.streams:
            return
        for line in self._lines.feed(chunk):
            self._take(line, at)
        if self._lines.dropped > self._dropped:
            self._dropped = self._lines.dropped
            self.tally.forget_tools()

    def end(self, at: float) -> None:
        """Process the last line, which may lack a line break."""
        if self._lines.rest():
            self.feed(b"\n", at)

    @property
    def line(self) -> str:
        """Its newest message, as text that is safe for a terminal."""
        return neutral(self.tally.message)

    def usage(self, prompt: Path, before: Usage) -> Usage:
        """Return what the session has used; `before` is the part of earlier ones in its conversation. Blocks.

        Its own files count if they say more than its output, or if that said nothing.
        """
        reported, whole = self.tally.usage, self.traits.whole_thread or self.tally.whole_thread
        silent = reported == Usage()
        if isinstance(self._agent, KnownAgent) and (silent or self.traits.books):
            found = self._agent.recorded(self.tally.conversation, prompt, reported)
            if found is not None and found.usage is not None:
                reported, whole = found.usage, whole or found.whole_thread
        return since(reported, before) if whole else reported

    @property
    def recap(self) -> str:
        """What it said and did last, a line each, in words and not as its events."""
        return "\n".join(self._recent)

    @property
    def question(self) -> str:
        """What it asked at its end in its message to the user; empty if that is no question."""
        said = self.tally.said.strip()
        return (
            neutral(said[-_LONGEST_QUESTION:])
            if self.tally.at_end and _ASKS.search(said[-_LONGEST_QUESTION:])
            else ""
        )

    @property
    def hopeless(self) -> bool:
        """Whether it has reported an error that no retry can fix, and yet keeps trying.

        An agent that prints plain text is never judged so: what looks like its error may be a quotation.
        """
        final = self.tally.final
        return self.traits.says_end and final is not None and final.fault is Fault.PERMANENT

    def verdict(self, returncode: int, last_line: str, at: float) -> Final | None:
        """Return its final result; None leaves the judgment to the exit code."""
        final = self.tally.final
        if final is None and self.traits.says_end:
            if returncode:
                # Plain text is all that it left; the error may be above a stack trace.
                found = faults.failed(self._complaint or last_line, at=at)
                return found if found.fault is not None else None
            return Final(ok=False, message=f"it exited without a final result: {last_line}")
        if final is not None and not final.ok and final.fault in {Fault.LIMIT, Fault.TRANSIENT}:
            until = max(final.until, self.tally.resets_at)
            return Final(ok=False, message=final.message, fault=final.fault, until=until)
        return final

    def _take(self, line: bytes, at: float) -> None:
        seen = self._agent.parse(line) if self._agent else None
        if seen is not None:
            self.tally.add(seen, at)
            if seen.message and seen.message not in self._recent:
                self._recent.append(neutral(seen.message))
        elif self.traits.says_end and not line.startswith(b"{"):
            words = line[:_LONGEST_COMPLAINT].decode("utf-8", "replace")
            self._complaint = words if faults.fault_of(words) else self._complaint
            if words.strip():
                self._recent.append(neutral(words.strip()))

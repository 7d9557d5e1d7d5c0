"""A story's sessions as lines: rendered, or as they were written; whole, or their end."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from runner.agents.conversation.log_reader import LogReader
from runner.cli.logs.growing import GrowingLog
from runner.report.conversation import ending_of, has_agent, lines_of, title_of

if TYPE_CHECKING:
    from runner.cli.logs.selection import Numbered
    from runner.core.model import SessionRecord
    from runner.report.terminal.table import Look
    from runner.run.control.reader import RunReader

_CHUNK = 1 << 16


def session_lines(reader: "RunReader", numbered: "Numbered", look: "Look") -> Iterator[str]:
    """Return a session as lines; the output of a command has no line about its end."""
    number, session = numbered
    yield look.paint(title_of(number, session), "bold")
    yield from lines_of(LogReader(reader.log_of(session), session.agent).entries(last=True), look)
    yield from _ending(number, session, look)


def _ending(number: int, session: "SessionRecord", look: "Look") -> Iterator[str]:
    if has_agent(session) and (ending := ending_of(number, session)):
        yield look.paint(ending, "bold")


def last_lines(lines: Iterable[str], most: int, rest: str) -> Iterator[str]:
    """Return the last lines; `rest` says after their number how to see those before them."""
    kept: deque[str] = deque(maxlen=most)
    total = 0
    for line in lines:
        total += 1
        kept.append(line)
    if total > most:
        yield f"… {total - most:,} earlier lines{rest}"
    yield from kept


def write_raw(path: Path, most: int | None) -> None:
    """Write a log as it is, or its last lines."""
    try:
        with path.open("rb") as log:
            if most is None:
                while chunk := log.read(_CHUNK):
                    sys.stdout.buffer.write(chunk)
            else:
                sys.stdout.buffer.writelines(deque(log, maxlen=most))
    except FileNotFoundError:  # the session has started, but has not printed anything
        return
    sys.stdout.buffer.flush()


class Follower:
    """Prints the sessions of a story while they grow, each line once; at first only the last lines."""

    def __init__(
        self, reader: "RunReader", look: "Look", *, most: int, first: int, only: int | None, raw: bool
    ) -> None:
        self._reader = reader
        self._look = look
        self._most = most
        self._number = only or first
        self._only = only
        self._raw = raw
        self._log: LogReader | None = None
        self._bytes: GrowingLog | None = None
        self._begun = False

    def advance(self, sessions: "Sequence[SessionRecord]", *, last: bool = False) -> None:
        """Print what was added since the last call."""
        for line in self._first(self._added(sessions, last=last)):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def _first(self, lines: Iterator[str]) -> Iterator[str]:
        """Cut what was there before the first call."""
        if self._begun or self._raw:
            return lines
        self._begun = True
        title = list(islice(lines, 1))
        return iter([*title, *last_lines(lines, self._most, "")])

    def _added(self, sessions: "Sequence[SessionRecord]", *, last: bool) -> Iterator[str]:
        while self._number <= len(sessions) and self._only in {None, self._number}:
            session = sessions[self._number - 1]
            over = last or session.ended_at is not None
            if self._raw:
                self._bytes = self._bytes or GrowingLog(self._reader.log_of(session), raw=True)
                self._bytes.print_new(last=over)
            else:
                yield from self._rendered(session, over=over)
            if not over:
                return
            self._number, self._log, self._bytes = self._number + 1, None, None

    def _rendered(self, session: "SessionRecord", *, over: bool) -> Iterator[str]:
        begun = self._log is not None
        if self._log is None:
            self._log = LogReader(self._reader.log_of(session), session.agent)
            yield self._look.paint(title_of(self._number, session), "bold")
        yield from lines_of(self._log.entries(last=over), self._look, begun=begun)
        if session.ended_at is not None:
            yield from _ending(self._number, session, self._look)

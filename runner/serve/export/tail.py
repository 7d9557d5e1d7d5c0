"""Follows a run from another process and sends what has ended, so that the run itself pays nothing for it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct

from runner.core.errors import SystemFaultError, UsageError
from runner.core.events.events import Event
from runner.core.model import RunSnapshot
from runner.run.control.reader import CurrentRun, RunReader
from runner.serve.export.position import Position
from runner.serve.export.spans import Span, SpanFold
from runner.serve.export.tool_calls import tool_spans

POLL_SECONDS = 0.5
FIGURES_SECONDS = 10.0
LONGEST_WAIT = 60.0
TRIES_AT_END = 4
"""How often what is left is tried when the run is over; this process must end, too."""


class Sink(Protocol):
    """Where spans and figures go; false means that they were not taken."""

    @property
    def complaint(self) -> str:
        """Why something was not taken, as far as that is known."""

    def send(self, spans: Sequence[Span]) -> bool:
        """Take spans."""

    def send_figures(self, run: RunSnapshot, *, alive: bool, at: float) -> bool:
        """Take the figures of an instant."""


class Sent(Struct, frozen=True, kw_only=True):
    """What an export has sent; `interrupted`: the run has not ended, and will continue the trace."""

    run: RunSnapshot
    spans: int
    interrupted: bool


class NotSentError(SystemFaultError):
    """The collector has not taken what was sent."""


class Tail:
    """Sends the spans of one run to one collector, each once."""

    def __init__(self, reader: RunReader, sink: Sink, position: Position) -> None:
        self._reader = reader
        self._sink = sink
        self._position = position
        self._fold = SpanFold(reader.run_id)
        self._seq = 0
        self._taken = 0
        self._known = position.load()
        self._waiting: list[Span] = []
        self.spans = 0

    @property
    def run(self) -> RunSnapshot:
        """The run, as far as it was read."""
        return self._fold.run

    def advance(self) -> bool:
        """Send what has ended since the last call; return whether the collector has all of it.

        Nothing new is read before it has what is waiting: the journal is the buffer.
        """
        if not self._waiting:
            events, self._seq = self._reader.events_since(self._seq)
            self._waiting = [span for event in events for span in self._new_spans(event)]
        if self._waiting:
            if not self._sink.send(self._waiting):
                return False
            self.spans += len(self._waiting)
            self._waiting = []
            self._position.save(self._taken)
        return True

    def _new_spans(self, event: Event) -> Iterator[Span]:
        """Return what an event ends; nothing if an earlier process has sent it."""
        spans = self._fold.add(event)
        self._taken += 1
        if self._taken <= self._known:
            return
        for span in spans:
            if span.session is not None:
                yield from tool_spans(span, self._reader.log_of(span.session))
            yield span


def export(reader: RunReader, sink: Sink, position: Position, *, follow: bool) -> Sent:
    """Send what a run has ended so far; with `follow`, until the run is over. Blocks."""
    with _only_one(reader, position, follow=follow):
        tail = Tail(reader, sink, position)
        current = _followed(reader, sink, tail) if follow else reader.read()
        _send_rest(tail, sink)
        sink.send_figures(tail.run, alive=current.alive, at=time.time())
        return Sent(run=tail.run, spans=tail.spans, interrupted=current.over and not tail.run.ended)


@contextmanager
def _only_one(reader: RunReader, position: Position, *, follow: bool) -> Iterator[None]:
    """Wait until no other process exports this run there: one that a killed run has left will end."""
    while True:
        with position.held() as only:
            if only:
                yield
                return
        if not follow:
            raise UsageError(
                f"another process is sending run {reader.run_id} to this collector",
                hint="it sends everything; with --follow, this one would wait for its end.",
            )
        time.sleep(POLL_SECONDS)


def _followed(reader: RunReader, sink: Sink, tail: Tail) -> CurrentRun:
    """Send until the run is over; while the collector does not answer, wait longer and longer."""
    wait, figures_at = POLL_SECONDS, 0.0
    while True:
        # Read whether it is over first: what is sent afterwards then includes its last event.
        current = reader.read()
        if current.over:
            return current
        sent = tail.advance()
        wait = POLL_SECONDS if sent else min(LONGEST_WAIT, wait * 2)
        if sent and time.monotonic() >= figures_at:
            sink.send_figures(tail.run, alive=True, at=time.time())
            figures_at = time.monotonic() + FIGURES_SECONDS
        _sleep_while_active(reader, wait)


def _sleep_while_active(reader: RunReader, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not reader.read().over:
        time.sleep(min(POLL_SECONDS, max(0.0, end - time.monotonic())))


def _send_rest(tail: Tail, sink: Sink) -> None:
    for number in range(TRIES_AT_END):
        if tail.advance():
            return
        if number + 1 < TRIES_AT_END:
            time.sleep(POLL_SECONDS * 2**number)
    because = f": {sink.complaint}" if sink.complaint else ""
    raise NotSentError(
        f"the collector has not taken the spans of run {tail.run.run_id}{because}",
        hint=f"the run is not affected; `autopilot-multi export {tail.run.run_id}` sends what is missing.",
    )

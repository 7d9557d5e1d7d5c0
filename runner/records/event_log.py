"""The one place where something happens to a run: journalled first, then folded, then shown.

An intent is durable before its act begins, and what is recorded together is durable together.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import trio

from runner.core.events.events import Body, Event, RunStarted
from runner.core.events.fold import apply
from runner.core.model import KillSwitch, RunSnapshot
from runner.core.text.redaction import Redactor

Listener = Callable[[Event, RunSnapshot], None]


class EventStore(Protocol):
    """Where events become durable; blocking, called in a thread."""

    def append(self, events: Sequence[Event]) -> None:
        """Make the events durable, all or none."""


@dataclass(slots=True, eq=False)
class _Entry:
    """What one caller wants recorded; its events are never torn apart."""

    events: list[Event]
    recorded: bool = False
    published: bool = False
    objection: Callable[[], KillSwitch | None] | None = None
    refused: KillSwitch | None = None

    @property
    def settled(self) -> bool:
        """Tell whether nobody waits for it any more."""
        return self.recorded or self.refused is not None


class Recorder:
    """Holds the run's current snapshot and tells its listeners of every event."""

    def __init__(
        self,
        *,
        store: EventStore,
        snapshot: RunSnapshot,
        wall_clock: Callable[[], float] = time.time,
        redactor: Redactor | None = None,
    ) -> None:
        self.redactor = redactor or Redactor()
        self._store = store
        self._wall_clock = wall_clock
        self._listeners: list[Listener] = []
        self._lock = trio.Lock()
        self._waiting: list[_Entry] = []
        self.snapshot = snapshot
        self.last_activity = trio.current_time()

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` after every event; it must not block."""
        self._listeners.append(listener)

    def now(self) -> float:
        """Give the time of day, as events carry it."""
        return self._wall_clock()

    async def record(self, *bodies: Body) -> None:
        """Make these events durable in one transaction, then let the run's state follow.

        What several stories record at once shares one transaction, since each costs a flush of the disk.
        """
        await self._record(_Entry(self._events(bodies)))

    async def record_unless(
        self, objection: Callable[[], KillSwitch | None], *bodies: Body
    ) -> KillSwitch | None:
        """Record these, unless there is an objection by the time that all before them is recorded."""
        entry = _Entry(self._events(bodies), objection=objection)
        await self._record(entry)
        return entry.refused

    async def _record(self, entry: _Entry) -> None:
        self._waiting.append(entry)
        try:
            async with self._lock:
                while not entry.settled:
                    await self._record_waiting()
        finally:
            if not entry.settled and entry in self._waiting:
                self._waiting.remove(entry)

    def defer(self, *bodies: Body) -> None:
        """Let the run's state follow now, and record these with whatever is recorded next.

        Only for the end of an act that a resume finds done anyway: its intent is durable already.
        """
        entry = _Entry(self._events(bodies), published=True)
        self._waiting.append(entry)
        for event in entry.events:
            self._publish(event)

    def _events(self, bodies: tuple[Body, ...]) -> list[Event]:
        at = self._wall_clock()
        return [Event(run_id=self.snapshot.run_id, at=at, body=self._clean(body)) for body in bodies]

    def _clean(self, body: Body) -> Body:
        """Take secrets out of what came from outside; a plan must stay as the user wrote it."""
        return body if isinstance(body, RunStarted) else self.redactor.value(body)

    async def _record_waiting(self) -> None:
        batch = self._next_batch()
        events = [event for entry in batch for event in entry.events]
        try:
            await trio.to_thread.run_sync(self._store.append, events)
        except BaseException:
            self._waiting = batch + self._waiting  # whoever waits for one of them must hear of it too
            raise
        for entry in batch:
            entry.recorded = True
        for event in [event for entry in batch if not entry.published for event in entry.events]:
            self._publish(event)

    def _next_batch(self) -> list[_Entry]:
        """Take what waits; who may be objected to goes only when all that came before is known."""
        batch: list[_Entry] = []
        waiting, self._waiting = self._waiting, []
        news = False
        for number, entry in enumerate(waiting):
            if entry.objection is None:
                news = news or bool(entry.events and not entry.published)
            elif news:
                self._waiting = waiting[number:]
                break
            else:
                entry.refused = entry.objection()
            if entry.refused is None:
                batch.append(entry)
        return batch

    def show(self, body: Body) -> None:
        """Let people see something that is not worth keeping."""
        self._publish(Event(run_id=self.snapshot.run_id, at=self._wall_clock(), body=self._clean(body)))

    def touch(self) -> None:
        """Note a sign of life from some story."""
        self.last_activity = trio.current_time()

    def _publish(self, event: Event) -> None:
        self.touch()
        self.snapshot = apply(self.snapshot, event)
        for listener in self._listeners:
            listener(event, self.snapshot)

"""The one place where something happens to a run: written to the journal, applied to its state, shown.

Events that are not durable yet are in one of two queues:

- `_deferred`: already published, so the run's state has them; they go to disk with the next record.
- `_waiting`: requests of callers that wait; published only once they are durable.

Invariants:

1. Durable first. `record` returns, and its events are published, only after the store has them, so an
   intent is on disk before its act begins. `defer` is for the ends of acts whose intent is durable.
2. All or none. The events of one call are adjacent in one transaction.
3. Order. The journal has events in the order of the calls, across both queues: what was deferred before
   a record comes before it.
4. One writer. Only the caller that has set `_writing` takes from the queues, and it publishes what it
   wrote before it clears it. Events that are in neither queue and not published belong to its transaction.
5. A failed write loses nothing. What was taken returns to the front of its queue; each caller learns of
   the failure by trying for itself, and deferred events go with the next record that succeeds.
6. Conditions see everything. `record_unless` judges its condition when no event of an earlier `record` is
   unpublished, and writes without letting another writer in between. What other conditions let through at
   the same time is of the same kind, such as the start of a session, and counts only if it is `strict`.
7. Nothing is recorded for a caller that was cancelled first. A request that no transaction has taken
   leaves its queue with its caller; one that was taken is never abandoned halfway, so that the state has
   what the disk has.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import trio

from isolation.files import threads
from runner.core.events.events import Body, Event, RunStarted
from runner.core.events.fold import apply
from runner.core.events.steering import StoriesAdded, StoryEdited
from runner.core.model import KillSwitch, RunSnapshot
from runner.core.text.redaction import Redactor

Listener = Callable[[Event, RunSnapshot], None]
Condition = Callable[[], KillSwitch | None]


_AS_WRITTEN = (RunStarted, StoriesAdded, StoryEdited)
"""What holds stories; it must stay as the user wrote it."""


class EventStore(Protocol):
    """Where events become durable; blocking, called in a thread."""

    def append(self, events: Sequence[Event]) -> None:
        """Make the events durable, all or none."""


@dataclass(slots=True, eq=False)
class _Deferred:
    """Published events of one call; `number` is the position of the call among all calls."""

    number: int
    events: tuple[Event, ...]


@dataclass(slots=True, eq=False)
class _Request:
    """What one caller waits for: its events become durable, or its condition refuses them."""

    number: int
    events: tuple[Event, ...]
    unless: Condition | None = None
    strict: bool = False
    recorded: bool = False
    refused_by: KillSwitch | None = None
    abandoned: bool = False

    @property
    def settled(self) -> bool:
        """Whether its caller has its answer."""
        return self.recorded or self.refused_by is not None


def _steady_clock() -> Callable[[], float]:
    """Return a clock that shows the time of day now, and from here on only runs on."""
    # It also counts the time in which the machine sleeps.
    uptime = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    ahead = time.time() - uptime()
    return lambda: ahead + uptime()


class EventLog:
    """Holds the run's current snapshot, and passes every event on to its listeners."""

    def __init__(
        self,
        *,
        store: EventStore,
        snapshot: RunSnapshot,
        wall_clock: Callable[[], float] | None = None,
        redactor: Redactor | None = None,
        calls_back: bool = False,
    ) -> None:
        """Begin with a snapshot; `calls_back` says that the store calls back into trio from its thread."""
        self.redactor = redactor or Redactor()
        self._store = store
        self._calls_back = calls_back
        self._clock = wall_clock or _steady_clock()
        self.wall_clock = wall_clock or time.time
        """The time of day as the machine has it, which can be set; for what other processes read."""
        self._listeners: list[tuple[Listener, tuple[type, ...]]] = []
        self._writing = False
        self._idle = trio.lowlevel.ParkingLot()
        self._numbers = itertools.count()
        self._deferred: list[_Deferred] = []
        self._waiting: list[_Request] = []
        self.snapshot = snapshot
        self.last_activity = trio.current_time()

    def subscribe(self, listener: Listener, *kinds: type[Body]) -> None:
        """Call `listener` after every event, or only after those of the given kinds; it must not block."""
        self._listeners.append((listener, kinds or (object,)))

    def now(self) -> float:
        """Return the time of day, as events carry it; their differences are true however the clock is set."""
        return self._clock()

    async def record(self, *bodies: Body) -> None:
        """Make these events durable in one transaction, then publish them.

        Callers that wait at the same time share a transaction, since each costs a flush of the disk.
        """
        await self._settle(_Request(next(self._numbers), self._events(bodies)))

    async def record_unless(
        self, condition: Condition, *bodies: Body, strict: bool = False
    ) -> KillSwitch | None:
        """Record these unless `condition` names a kill-switch once all earlier calls are published.

        Unless it is `strict`, it may share a transaction with other conditions. Return that kill-switch, or
        None when the events were recorded.
        """
        request = _Request(next(self._numbers), self._events(bodies), unless=condition, strict=strict)
        await self._settle(request)
        return request.refused_by

    async def take(self, events: Sequence[Event], *, unless: Condition) -> KillSwitch | None:
        """Record what happened on another machine, with its times, unless `unless` names a kill-switch.

        Return that kill-switch, or None when the events were recorded.
        """
        clean = (self._clean(event) for event in events)
        request = _Request(next(self._numbers), tuple(clean), unless=unless)
        await self._settle(request)
        return request.refused_by

    def follow(self, event: Event) -> None:
        """Publish an event that is durable on another machine."""
        self._publish(event)

    def defer(self, *bodies: Body) -> None:
        """Publish these now, and make them durable with whatever is recorded next.

        Only for the end of an act that a resume finds done anyway: its intent is durable already.
        """
        deferred = _Deferred(next(self._numbers), self._events(bodies))
        self._deferred.append(deferred)
        for event in deferred.events:
            self._publish(event)

    def show(self, body: Body) -> None:
        """Publish an event that is not worth keeping."""
        for event in self._events((body,)):
            self._publish(event)

    def touch(self) -> None:
        """Note a sign of life from some story."""
        self.last_activity = trio.current_time()

    def _events(self, bodies: tuple[Body, ...]) -> tuple[Event, ...]:
        at = self._clock()
        # Secrets are taken out of what came from outside; the plan, which comes first in its run, and what
        # is added to it must stay as the user wrote it.
        plan = 1 if bodies and isinstance(bodies[0], _AS_WRITTEN) else 0
        clean = (*bodies[:plan], *self.redactor.value(bodies[plan:]))
        return tuple(Event(run_id=self.snapshot.run_id, at=at, body=body) for body in clean)

    def _clean(self, event: Event) -> Event:
        (body,) = self.redactor.value((event.body,))
        return Event(run_id=self.snapshot.run_id, at=event.at, body=body)

    async def _settle(self, request: _Request) -> None:
        """Wait until some transaction, this caller's or another's, has settled the request."""
        self._waiting.append(request)
        try:
            # The task that writes now may settle this request along with its own. Afterwards the one that
            # has waited longest writes, so that an event that cannot be written fails its own caller.
            # A lock would cost a turn of the scheduler for each record, though hardly two ever meet.
            while not request.settled:
                if self._writing or self._waiting[0] is not request:
                    await self._idle.park()
                else:
                    await self._write_next()
        finally:
            # Invariant 7: a caller that fails or is cancelled takes along what is still in the queue,
            # and what a transaction has taken does not return there if that transaction fails.
            request.abandoned = not request.settled
            if request in self._waiting:
                self._waiting.remove(request)
                self._idle.unpark_all()  # another one is first in line now

    async def _write_next(self) -> None:
        """Write one transaction and publish what was waiting for it; no other task writes meanwhile."""
        self._writing = True
        try:
            await self._write(*self._take())
        finally:
            self._writing = False
            self._idle.unpark_all()

    async def _write(self, deferred: list[_Deferred], requests: list[_Request]) -> None:
        calls: list[_Deferred | _Request] = [*deferred, *requests]
        in_order = sorted(calls, key=lambda call: call.number)
        events = [event for call in in_order for event in call.events]
        try:
            # The thread is not abandoned on cancellation: the write ends, then its events are published.
            run = trio.to_thread.run_sync if self._calls_back else threads.run
            await run(self._store.append, events)
        except BaseException:
            # Invariant 5. Back at the front, they also stay ahead of all that came meanwhile (3).
            self._deferred[:0] = deferred
            self._waiting[:0] = [request for request in requests if not request.abandoned]
            raise
        # No checkpoint from here on: no task can see a request recorded while its events are unpublished.
        for request in requests:
            request.recorded = True
        for event in [event for request in requests for event in request.events]:
            self._publish(event)

    def _take(self) -> tuple[list[_Deferred], list[_Request]]:
        """Take from both queues what may share the next transaction, and settle what is refused.

        A condition behind events that are still unpublished waits for the transaction after this one (6),
        and so does everything behind it (3). A strict one waits behind anything.
        """
        taken: list[_Request] = []
        left: list[_Request] = []
        unpublished = False
        for index, request in enumerate(self._waiting):
            if request.unless is not None:
                if unpublished or (request.strict and taken):
                    left = self._waiting[index:]
                    break
                request.refused_by = request.unless()
            elif request.events:
                unpublished = True
            if request.refused_by is None:
                taken.append(request)
        self._waiting = left
        deferred = [one for one in self._deferred if not left or one.number < left[0].number]
        self._deferred = self._deferred[len(deferred) :]
        return deferred, taken

    def _publish(self, event: Event) -> None:
        self.touch()
        self.snapshot = apply(self.snapshot, event)
        for listener, kinds in self._listeners:
            if isinstance(event.body, kinds):
                listener(event, self.snapshot)

"""The coordinator's link to one worker: it tells, listens, and sends files, until the worker is lost.

Two requests are under way at any time: one that tells the worker what it must know now, and one that waits
for what is new there. The answer to what a worker said is mostly there within a moment, and goes along with
the next question: each message passes through the scheduler, and costs more than what is in it. A broken
connection is tried again for as long as the worker may be silent; an answer that was lost on the way comes
again, and counts once, and so does what is sent twice.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from isolation.git.repository import Repository
from runner.remote.cluster.placing.placement import Needs, Room, amounts_of
from runner.remote.cluster.remote_clone import RemoteClone
from runner.remote.cluster.wire.hub import Hub
from runner.remote.cluster.wire.messages import (
    Ack,
    Bundle,
    ClusterError,
    Fetch,
    Greeting,
    Heard,
    Levels,
    Listen,
    Machine,
    Prepare,
    Put,
    Sent,
    Start,
    Take,
    Update,
    Updated,
)

WAIT_SECONDS = 5.0
"""For how long a worker may wait with its answer if nothing is new."""
PASS_SECONDS = 0.5
"""For how long what happened elsewhere may wait for company; nothing on a worker waits for it."""
LINGER_SECONDS = 0.1
"""For how long the next question waits for the answer to what a worker has just said."""
RETRY_SECONDS = 0.2
MOST_EVENTS = 2000
"""How many events travel in one message."""
AWAY_SECONDS = 5.0
"""For how long a worker may be unknown to the scheduler: one whose connection broke joins again."""
REJOIN_SECONDS = 15.0
"""For how long a worker is excused after the scheduler itself could not be reached: all join again then."""

CLOSED_SECONDS = 60.0
"""For how long no story comes to a worker that could not take over commits of its repository."""

T = TypeVar("T")


class Stream:
    """The run's events so far, in their form for the way; grows at its end only."""

    def __init__(self, events: Sequence[Sent]) -> None:
        self.events = list(events)

    def after(self, number: int) -> tuple[Sent, ...]:
        """Return the next events after so many."""
        return tuple(self.events[number : number + MOST_EVENTS])


class Link:
    """One worker that serves the run; `lost` says why it is not asked any more.

    `repositories` are those of the run, by the names that stories have for them; the worker has, or gets, a
    clone of each in which its stories work. `hear` gets every answer once, in order.
    """

    def __init__(
        self,
        *,
        hub: Hub,
        address: str,
        greeting: Greeting,
        run_id: str,
        repositories: Mapping[str, Repository],
        folder: Path,
        silence: float,
    ) -> None:
        self.address = address
        self.name = greeting.name
        self.instance = greeting.instance
        self.machine = Machine(stories=0, tier="unknown", reason="")
        self.carrying: dict[str, int] = {}
        self.placed: dict[str, Needs] = {}
        """The needs of the stories that are placed here."""
        self.lost = ""
        self.ended = trio.Event()
        self._greeting = greeting
        self._hub = hub
        self._run_id = run_id
        self._clones = {
            name: RemoteClone(each, run_id=run_id, worker=greeting, folder=folder, ask=self._try)
            for name, each in repositories.items()
        }
        self._closed: dict[str, float] = {}
        """Until when no story comes here whose repository the worker could not take over."""
        self._silence = silence
        self._wait = min(WAIT_SECONDS, silence / 4)
        self._heard_at = trio.current_time()
        self._received = 0
        self._acks: list[Ack] = []
        self._starts: list[Start] = []
        self._expected: Start | None = None
        self._expected_is_new = False
        self.expects = ""
        """The story for which the worker prepares, or is about to."""
        self._fenced: list[tuple[str, int]] = []
        self._due = trio.Event()
        self._urgent = trio.Event()
        self._answers: trio.Event | None = None
        """Set once what the worker has just said has an answer, while its next question waits for that."""
        self._over = trio.CancelScope()
        self._trouble = False

    @property
    def slots(self) -> int:
        """How many stories the worker allows now."""
        return 0 if self.lost else self.machine.stories

    def room(self, is_leaving: Callable[[str], bool]) -> Room:
        """Return what the worker has, and what is taken of it; a story that is leaving takes nothing."""
        used: dict[str, float] = {}
        held = {**dict.fromkeys(self.carrying, ()), **self.placed}
        staying = [needs for name, needs in held.items() if not is_leaving(name)]
        for needs in staying:
            for name, amount in amounts_of(needs).items():
                used[name] = used.get(name, 0.0) + amount
        return Room(
            name=self.instance,
            slots=0 if self._trouble else self.slots,
            taken=len(staying),
            offers=self._greeting.offers,
            used=used,
            labels=frozenset(self._greeting.labels),
            expects=self.expects,
            repos=frozenset(name for name, clone in self._clones.items() if clone.is_begun),
            closed=frozenset(name for name, until in self._closed.items() if until > trio.current_time()),
        )

    @property
    def can_prepare(self) -> bool:
        """Whether the worker has what it takes to prepare for a story that comes next."""
        return bool(self.slots) and not self._trouble and self.machine.has_disk

    def expect(self, start: Start | None) -> None:
        """Have the worker prepare for a story, and for no other."""
        if start != self._expected:
            self._expected, self._expected_is_new = start, True
            self.pass_on()

    def acknowledge(self, ack: Ack) -> None:
        """Report to the worker what became of a batch."""
        self._acks.append(ack)
        self.wake()

    def fence(self, story_id: str, fence: int) -> None:
        """Have the worker leave a story that was placed again."""
        if self.carrying.get(story_id) == fence:
            del self.carrying[story_id]
        self._fenced.append((story_id, fence))
        self.wake()

    def start(self, start: Start) -> None:
        """Have the worker begin a story, after all events that are in the stream by now."""
        self._starts.append(start)
        self.wake()

    def wake(self) -> None:
        """Send the worker what is new, at once."""
        self._urgent.set()
        self._urgent = trio.Event()
        self.pass_on()

    def pass_on(self) -> None:
        """Send the worker what happened elsewhere, soon: several events travel together."""
        self._due.set()
        self._due = trio.Event()

    async def serve(self, stream: Stream, levels: Callable[[], Levels], hear: Callable[[Heard], None]) -> str:
        """Send news and listen until the worker is lost; return why."""
        self._received = len(stream.events) if not self._received else self._received
        with self._over:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._update, stream, levels)
                nursery.start_soon(self._watch)
                await self._listen(stream, levels, hear)
        return self.lost

    def lose(self, reason: str) -> None:
        """End the link: nothing that comes from there counts any more."""
        self.lost = self.lost or reason
        self._over.cancel()
        self.ended.set()

    def opened_with(self, events: int) -> None:
        """Note how many events the worker got when it opened the run."""
        self._received = events

    async def _update(self, stream: Stream, levels: Callable[[], Levels]) -> None:
        """Send the worker what is new, unless its next question takes that along."""
        while True:
            due, urgent = self._due, self._urgent
            if self._answers is not None:
                self._answers.set()
            else:
                request = self._news(stream, levels)
                answer = await self._ask(request)
                if not isinstance(answer, Updated):
                    raise ClusterError(f"worker {self.name} answered {type(answer).__name__}")
                self._sent(request, answer.received)
                if self._has_news(stream):
                    continue
            await due.wait()
            with trio.move_on_after(PASS_SECONDS):
                await urgent.wait()

    def _has_news(self, stream: Stream) -> bool:
        return bool(self._acks or self._starts or self._fenced) or self._received < len(stream.events)

    def _news(self, stream: Stream, levels: Callable[[], Levels]) -> Update:
        """Return all that the worker does not know for certain."""
        is_current = self._received + MOST_EVENTS >= len(stream.events)
        expected: tuple[Start, ...] | None = None
        if is_current and self._expected_is_new:
            expected = (self._expected,) if self._expected is not None else ()
            self._expected_is_new = False
        return Update(
            run_id=self._run_id,
            first=self._received,
            events=stream.after(self._received),
            acks=tuple(self._acks),
            starts=tuple(self._starts) if is_current else (),
            expected=expected,
            fenced=tuple(self._fenced),
            levels=levels(),
        )

    def _sent(self, request: Update, received: int) -> None:
        """Note that the worker knows what was in a request."""
        self._received = max(self._received, received)
        self._acks = [ack for ack in self._acks if ack not in request.acks]
        self._starts = [start for start in self._starts if start not in request.starts]
        self._fenced = [fenced for fenced in self._fenced if fenced not in request.fenced]

    async def _listen(
        self, stream: Stream, levels: Callable[[], Levels], hear: Callable[[Heard], None]
    ) -> None:
        number, update = 0, None
        while True:
            request = Listen(run_id=self._run_id, number=number, wait=self._wait, update=update)
            answer = await self._ask(request)
            if not isinstance(answer, Heard):
                raise ClusterError(f"worker {self.name} answered {type(answer).__name__}")
            if update is not None:
                self._sent(update, answer.received)
            number, update = answer.number, None
            self.machine = answer.machine
            hear(answer)
            if answer.batches:
                self._answers = trio.Event()
                with trio.move_on_after(LINGER_SECONDS):
                    await self._answers.wait()
                self._answers = None
                if self._has_news(stream):
                    update = self._news(stream, levels)

    async def _watch(self) -> None:
        """Lose the worker when it has been silent for too long, or the scheduler no longer knows it.

        Nothing is held against it while the scheduler itself is silent: the cut may be on this side.
        """
        missing_since: float | None = None
        excused_until = 0.0
        while True:
            await trio.sleep(1.0)
            silent = trio.current_time() - self._heard_at
            if silent <= 1.0 or not (self._trouble or silent > 1.0 + self._wait):
                missing_since = None
                continue
            asked = trio.current_time()
            try:
                workers = await self._hub.workers()
            except ConnectionError:
                workers = None
            now = trio.current_time()
            if workers is None or now > asked + 1.0:  # Dask waits for a scheduler that is gone
                excused_until, missing_since = now + REJOIN_SECONDS, None
            if workers is None or now < excused_until:
                continue
            missing_since = None if self.address in workers else missing_since or now
            if missing_since is not None and now - missing_since > min(AWAY_SECONDS, self._silence):
                self.lose(f"worker {self.name} left the cluster")
            if now - self._heard_at > self._silence:
                self.lose(f"worker {self.name} has been silent for {now - self._heard_at:.0f} s")

    async def _ask(self, request: Update | Listen) -> object:
        """Ask again and again until there is an answer; the watch ends that, and a refusal."""
        try:
            return await self._try(request)
        except ClusterError as error:
            self.lose(f"worker {self.name}: {error.message}")
            await trio.sleep_forever()

    async def _try(
        self, request: Update | Listen | Prepare | Put | Take | Fetch, *, limit: float = 2.0
    ) -> object:
        """Ask again and again until there is an answer; raises ClusterError if it is a refusal."""
        while True:
            try:
                answer = await self._hub.ask(self.address, request, limit=max(limit, 2 * self._wait))
            except ConnectionError:
                self._trouble = True
                await trio.sleep(RETRY_SECONDS)
                continue
            self._heard_at, self._trouble = trio.current_time(), False
            return answer

    def clone(self, repo: str) -> RemoteClone:
        """Return the worker's clone of a repository of the run, by the name that stories have for it."""
        return self._clones[repo]

    async def bring(self, repo: str, commits: Collection[str]) -> None:
        """Send what the worker's clone of a repository lacks of these commits, and have it taken over there.

        Raises ConnectionError if the worker is lost meanwhile, and ClusterError if it cannot take them over;
        stories of other repositories may still work there then.
        """
        try:
            await unless(self.ended.wait, partial(self._clones[repo].bring, commits), lambda: self.lost)
        except ClusterError:
            self._closed[repo] = trio.current_time() + CLOSED_SECONDS
            raise

    async def take(self, repo: str, bundle: Bundle) -> None:
        """Take commits of the worker over; a bundle is brought here in parts, none of which is sent twice.

        Raises ConnectionError if the worker is lost meanwhile.
        """
        clone, path = self._clones[repo], None
        if not bundle.data:
            try:
                path = await unless(self.ended.wait, partial(clone.fetch, bundle), lambda: self.lost)
            except ClusterError as error:
                self.lose(f"worker {self.name}: {error.message}")
                raise ConnectionError(self.lost) from error
        await clone.take(bundle, path)


async def first_of(*waits: Callable[[], Awaitable[None]]) -> None:
    """Wait until one of these is over."""
    async with trio.open_nursery() as nursery:
        for wait in waits:
            nursery.start_soon(_then_cancel, wait, nursery.cancel_scope)


async def unless(
    over: Callable[[], Awaitable[None]], work: Callable[[], Awaitable[T]], why: Callable[[], str]
) -> T:
    """Return what `work` does; raises ConnectionError if `over` ends first."""
    done: list[T] = []
    failed: list[Exception] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_then_cancel, over, nursery.cancel_scope)
        try:
            done.append(await work())
        except Exception as error:  # noqa: BLE001  raised below, where no nursery wraps it in a group
            failed.append(error)
        nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if not done:
        raise ConnectionError(why())
    return done[0]


async def _then_cancel(wait: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await wait()
    scope.cancel()

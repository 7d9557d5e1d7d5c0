"""A story that a worker carries: placed with a fence, followed by its events, placed again if it is lost.

Its worker sends events in batches and waits for each to be in the journal, so what the journal does not have
did not happen. A batch counts only with the fence of the newest placing: a compare-and-swap inside the
transaction that records it.
"""

from contextlib import suppress
from typing import Protocol, TypeAlias

import trio
from msgspec import Struct, structs
from trio import to_thread

from isolation.git.clones.travel import move_branch
from isolation.git.clones.uncommitted import (
    forget_uncommitted,
    keep_uncommitted,
    ref_of,
    uncommitted_of,
)
from runner.core.errors import JournalError
from runner.core.events import events as ev
from runner.core.events.cluster import StoryLost
from runner.core.limits.kill_switches import Switch
from runner.core.model import KillSwitch, StoryId, StorySnapshot
from runner.remote.cluster.link import Link, first_of
from runner.remote.cluster.talks import KeptTalks
from runner.remote.cluster.wire.messages import Ack, Batch, Bundle, Gone, Sent, received
from runner.remote.cluster.worker.shared_budget import Authority
from runner.story import results
from runner.story.context.context import StoryContext
from runner.story.context.stop import Level
from runner.story.faults import crashed
from runner.story.slot import Slot

MOST_LOSSES = 10
"""How often a story may lose its worker in one run; it may be what kills them."""
FENCED = KillSwitch(name="fenced", detail="the story was placed again", hint="")


class Lost(Struct, frozen=True, kw_only=True):
    """The worker is gone; `link` is the one that ended, None for a worker that has left the story itself."""

    reason: str
    link: Link | None = None


Item: TypeAlias = Batch | Gone | Lost


class Places(Protocol):
    """What a story needs of the fleet that carries it."""

    async def place(self, story: "RemoteStory") -> Link | None:
        """Find a worker; None once the story is to stop."""

    budget: Authority
    """Whether the run can pay for a session."""
    talks: KeptTalks
    """The conversations of agents that came here."""

    def has(self, story_id: StoryId, event: Sent) -> bool:
        """Whether the journal has the event already."""

    def release(self, story_id: StoryId, *, ended: bool = True) -> None:
        """Free what the story held of a worker."""


class RemoteStory:
    """Carries one story by the workers of a fleet; `run` is called once."""

    def __init__(self, context: StoryContext, slot: Slot, fleet: Places) -> None:
        self.story = context.story
        self._context = context
        self._log = context.log
        self._slot = slot
        self._fleet = fleet
        self._taken = 0
        self._send, self._items = trio.open_memory_channel[Item](1000)

    @property
    def now(self) -> StorySnapshot:
        """The state of the story."""
        return self._log.snapshot.stories[self.story.id]

    def deliver(self, item: Item) -> None:
        """Pass on what its worker sent; never blocks, since a worker waits after each batch."""
        with suppress(trio.WouldBlock):
            self._send.send_nowait(item)

    async def run(self) -> None:
        """Carry the story to its result; a bug in here becomes its result and cancels no other story."""
        try:
            with self._slot.scope:
                await self._carry()
        except JournalError:
            raise
        except Exception as error:  # noqa: BLE001  one story's bug must not cancel its siblings
            report = await to_thread.run_sync(self._context.run.write_crash, error)
            if not self.now.status.final:
                await self._log.record(crashed(error, self.story.id, self._log.snapshot.run_id, report))
        finally:
            self._fleet.budget.free(self.story.id)
            self._fleet.release(self.story.id)
            self._slot.left.send_nowait(self.story.id)

    async def _carry(self) -> None:
        losses = 0
        while True:
            self._taken = 0
            link = await self._fleet.place(self)
            if link is None:
                asked = self._context.run.control.asked_by(self.story.id)
                stopped = Switch.USER_ABORT.tripped(asked)
                await self._log.record(results.stopped(self.story.id, self._log.snapshot.run_id, stopped))
                return
            lost = await self._follow(link)
            if lost is None:
                return
            self._fleet.budget.free(self.story.id)
            now = self.now
            if now.status.final:  # only the removal of its folder was still to come
                await self._leave_folder(link, f"{lost.reason}; ")
                return
            losses += 1
            known = now.step_history.conversation
            talk = await to_thread.run_sync(self._fleet.talks.of, self.story.id, known)
            await self._log.record(
                StoryLost(
                    story_id=self.story.id,
                    worker=link.name,
                    fence=now.workspace.fence,
                    reason=lost.reason,
                    talks_on=talk is not None,
                ),
                ev.Noted(story_id=self.story.id, message=_again(lost.reason, now.workspace.path)),
            )
            if losses >= MOST_LOSSES:
                reason = f"its worker was lost {losses} times: {lost.reason}"
                await self._log.record(results.failed(self.story.id, reason))
                return

    async def _follow(self, link: Link) -> Lost | None:
        """Take what the worker sends until it has left the story; what was lost is returned."""
        async for item in self._items:
            fence = self.now.workspace.fence
            match item:
                case Batch() if item.fence == fence:
                    refused = await self._unpaid(item, link)
                    if refused is not None:
                        await self._refuse(refused, item, link)
                        return None
                    await self._take(item, link)
                case Gone() if item.fence == fence:
                    return await self._left(item, link)
                case Lost() if item.link is link:  # one of an earlier placing may still be on its way
                    return item
                case _:
                    continue
        return Lost(reason="the run ends")

    async def _unpaid(self, batch: Batch, link: Link) -> KillSwitch | None:
        """Return why a session must not start for which the run cannot pay; waits while others hold parts."""
        if batch.number <= self._taken or self._fleet.has(self.story.id, batch.events[0]):
            return None
        control, run_id = self._context.run.control, self._log.snapshot.run_id
        for body in [received(sent, run_id).body for sent in batch.events]:
            while (short := self._fleet.budget.judge(body, self._context)) is not None:
                if short.switch is not None:
                    return short.switch
                if control.level(self.story.id) >= Level.STOP:
                    return Switch.USER_ABORT.tripped(control.asked_by(self.story.id))
                if link.lost:
                    return None  # that it is lost comes next
                await first_of(self._fleet.budget.changed, control.raised, link.ended.wait)
        return None

    async def _refuse(self, switch: KillSwitch, batch: Batch, link: Link) -> None:
        """End a story whose session may not start; its worker leaves it."""
        link.acknowledge(Ack(story_id=self.story.id, fence=batch.fence, number=batch.number, fenced=True))
        await self._log.record(results.stopped(self.story.id, self._log.snapshot.run_id, switch))
        await self._left(Gone(story_id=self.story.id, fence=batch.fence), link)

    async def _take(self, batch: Batch, link: Link) -> None:
        """Make a batch part of the run: first its commits, then its events, then the worker may continue."""
        fence = batch.fence
        if batch.number > self._taken and not self._fleet.has(self.story.id, batch.events[0]):
            if batch.bundle is not None:
                try:
                    await link.take(self.story.repo, batch.bundle)
                except ConnectionError:
                    return  # that the worker is lost comes next
                await to_thread.run_sync(self._keep, batch.bundle)
            if batch.talk is not None:
                await to_thread.run_sync(self._fleet.talks.keep, self.story.id, batch.talk)
            run_id = self._log.snapshot.run_id
            events = [_of_worker(received(sent, run_id), link.name) for sent in batch.events]
            refused = await self._log.take(events, unless=lambda: self._fenced(fence))
            if refused is not None:
                return
            if any(isinstance(event.body, ev.SessionEnded) for event in events):
                self._fleet.budget.free(self.story.id)  # what it spent is in the journal now
        self._taken = max(self._taken, batch.number)
        link.acknowledge(Ack(story_id=self.story.id, fence=fence, number=batch.number))

    def _keep(self, bundle: Bundle) -> None:
        """Have the story's branch where it is on its worker, and keep what is not committed. Blocking."""
        repository, story_id = self._context.repository, self.story.id
        move_branch(repository, bundle.branch, bundle.tip)
        if bundle.left:
            keep_uncommitted(repository, story_id, bundle.left)
        elif left := uncommitted_of(repository, story_id):
            forget_uncommitted(repository, story_id, left)  # its worker has put it back, and had it committed

    def _fenced(self, fence: int) -> KillSwitch | None:
        """Return why what a placing says does not count, unless it is the newest one."""
        return None if self.now.workspace.fence == fence else FENCED

    async def _left(self, gone: Gone, link: Link) -> Lost | None:
        """Note where the folder of an ended story is; one that has no result is lost."""
        run_id = self._log.snapshot.run_id
        last = [each for each in gone.last if not self._fleet.has(self.story.id, each)]
        if last:
            events = [_of_worker(received(sent, run_id), link.name) for sent in last]
            await self._log.take(events, unless=lambda: self._fenced(gone.fence))
        now = self.now
        if not now.status.final:
            self._fleet.release(self.story.id, ended=False)
            return Lost(reason=f"worker {link.name} cannot work on it: {gone.trouble or 'it gave no reason'}")
        await self._leave_folder(link)
        return None

    async def _leave_folder(self, link: Link, why: str = "") -> None:
        """Note where the folder of a story is that has its result, if its worker did not remove it."""
        path = self.now.workspace.path
        if path is not None:
            where = f"is on worker {link.name}, at {path.partition(':')[2]}"
            words = await to_thread.run_sync(self._kept, f"{why}its worktree {where}")
            closed = ev.WorkspaceClosed(story_id=self.story.id, removed=True, reason=f"it {where}")
            await self._log.record(closed, ev.Noted(story_id=self.story.id, message=words))

    def _kept(self, where: str) -> str:
        """Return where to find what a story without success has made. Blocking."""
        if not uncommitted_of(self._context.repository, self.story.id):
            return where
        ref = ref_of(self.story.id)
        return f"what it left uncommitted is kept as {ref}, and it continues with that; {where}"


def _again(reason: str, path: str | None) -> str:
    """Return what is said of a story whose worker was lost; `path` is where its worktree was."""
    if path is None:
        return f"{reason}; it starts again from what it had"
    worker, _, folder = path.partition(":")
    since = f"what it did there since its last checkpoint is on worker {worker}, at {folder}"
    return f"{reason}; it starts again from what it had ({since})"


def _of_worker(event: ev.Event, worker: str) -> ev.Event:
    """Return an event of a worker for the journal: its folders are on that machine."""
    body = event.body
    if isinstance(body, ev.WorkspacePlanned | ev.WorkspaceOpened):
        body = structs.replace(body, path=f"{worker}:{body.path}")
    return structs.replace(event, body=body)

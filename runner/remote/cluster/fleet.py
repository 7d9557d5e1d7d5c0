"""The workers of a run: found, greeted, given stories, and replaced when they are lost.

Everything that a run needs of a cluster is behind `Carriers`: the orchestrator does not know where stories
are. The journal is on the coordinator alone; every worker gets a copy of all events, so that budgets, limits
and dependencies look the same everywhere.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

import trio
from msgspec import structs, to_builtins
from trio import to_thread

from isolation.errors import IsolationError
from isolation.git.clones.travel import forget_travel, keep_fenced
from isolation.git.clones.uncommitted import uncommitted_of
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir, run_dir
from runner.core.events import events as ev
from runner.core.events.cluster import StoryPlaced
from runner.core.events.story_json import to_json
from runner.core.model import RunSnapshot, Story, StoryId, Tier
from runner.core.schedule.tiers import severity
from runner.core.schedule.window import Limit
from runner.core.text.names import branch_of
from runner.core.text.words import count
from runner.remote.cluster.fleet_window import FleetWindow
from runner.remote.cluster.link import AWAY_SECONDS, Link, Stream, first_of
from runner.remote.cluster.placing.ahead import Ahead
from runner.remote.cluster.placing.placement import Room, choose, unmet, unplaced
from runner.remote.cluster.remote_story import FENCED, Lost, RemoteStory
from runner.remote.cluster.roster import Roster
from runner.remote.cluster.talks import KeptTalks
from runner.remote.cluster.travelling import write_log_part
from runner.remote.cluster.wire.hub import Hub
from runner.remote.cluster.wire.messages import (
    Ack,
    Batch,
    ClusterError,
    Gone,
    Heard,
    Levels,
    Sent,
    Start,
    Talk,
    sent,
)
from runner.remote.cluster.worker.shared_budget import Authority
from runner.run.carry.carriers import WindowSource
from runner.story.context.context import RunContext, StoryContext
from runner.story.context.stop import Level
from runner.story.slot import Slot


class Fleet:
    """Carries stories on workers."""

    prepares_ahead = False

    def __init__(self, hub: Hub, context: RunContext, events: Sequence[ev.Event], *, examine: bool) -> None:
        self._home: Repository = context.repository
        self.run_id = context.log.snapshot.run_id
        self._context = context
        self._log = context.log
        self._stream = Stream([sent(event) for event in events])
        self._recorded = {(ev.story_of(event.body), event.at) for event in events}
        self._stories: dict[str, RemoteStory] = {}
        self._lost: set[str] = set()
        self._early: dict[str, list[Batch | Gone]] = {}
        """What workers said about stories that a resumed run has not taken up yet."""
        self.budget = Authority(context)
        self.talks = KeptTalks(run_dir(self._home.common_dir, self.run_id) / "cluster" / "talks")
        self._changed = trio.Event()
        self._awaited_until = trio.current_time() + AWAY_SECONDS
        self._ahead = Ahead()
        self._chosen: dict[str, Link] = {}
        """The worker of each story whose placing is about to be recorded."""
        self._aside: trio.Nursery
        self._roster = Roster(hub, context, self._stream, examine=examine, wake=self.wake)

    # What the orchestrator asks.

    def unplaced(self, stories: Sequence[Story], ready: Collection[StoryId]) -> Mapping[StoryId, str]:
        """Return which of these no worker can take now; one that still has its worker needs no other."""
        self._ahead.keep(ready, self._roster.links)
        looking = [story for story in stories if self._holder(story.id) is None]
        rooms = self._rooms()
        found = unplaced(looking, rooms, patient=self._ahead.patient)
        self._ahead.passed(found)
        for story_id, needs in unmet(looking, rooms).items():
            words = f"story {story_id} waits for a worker with {needs}, and none that is here offers that"
            self._aside.start_soon(self._roster.say_once, f"needs {story_id}", words)
        return found

    def expect(self, stories: Sequence[Story]) -> None:
        """Have workers prepare for stories that come next."""
        known = self._log.snapshot.stories
        new = [story for story in stories if not known[story.id].workspace.fence]
        for link, story in self._ahead.assign(new, self._roster.links):
            self._aside.start_soon(self._prepare, link, story)

    async def _prepare(self, link: Link, story: Story) -> None:
        """Have a worker prepare for a story, unless it has gone elsewhere by then."""
        try:
            start = await self._start_of(story, link)
        except IsolationError:
            return  # it is found again, and said, when the story is placed
        if link.expects != story.id:
            return
        if start is None:
            link.expects = ""
        else:
            link.expect(start)

    def _holder(self, story_id: StoryId) -> Link | None:
        """Return the worker that works on a story by its newest placing."""
        placed = self._log.snapshot.stories[story_id].workspace
        link = self._roster.of_instance(placed.instance)
        return link if link is not None and link.carrying.get(story_id) == placed.fence else None

    def _rooms(self) -> list[Room]:
        """Return what the workers have; a story with its result only cleans up, as on this machine."""
        stories = self._log.snapshot.stories
        return [link.room(lambda name: stories[StoryId(name)].status.final) for link in self._roster.links]

    def intent(self, story: Story) -> Sequence[ev.Body]:
        """Return where the story is placed, if that is clear at once; its worker plans the workspace."""
        now = self._log.snapshot.stories[story.id]
        if now.step_history.conversation is not None or self._holder(story.id) is not None:
            return ()
        if self._is_awaited(now.workspace.instance):
            return ()
        link = self._free_for(story)
        if link is None:
            return ()
        self._chosen[story.id] = link
        return (self._placed(story, link, now.workspace.fence, fresh=False),)

    def _free_for(self, story: Story) -> Link | None:
        """Return the worker that should have the story now."""
        room = choose(story.needs, self._rooms(), story_id=story.id, repo=story.repo)
        return None if room is None else self._roster.of_instance(room.name)

    def _placed(self, story: Story, link: Link, fence: int, *, fresh: bool) -> StoryPlaced:
        """Take a slot of a worker, and return the event that says so."""
        link.placed[story.id] = story.needs
        self._ahead.forget(story.id, self._roster.links)
        return StoryPlaced(
            story_id=story.id, worker=link.name, instance=link.instance, fence=fence + 1, fresh=fresh
        )

    def carry(
        self,
        context: StoryContext,
        slot: Slot,
        *,
        interrupted: bool,  # noqa: ARG002  the worker finds out
    ) -> Callable[[], Awaitable[None]]:
        """Return what carries the story on a worker."""
        story = RemoteStory(context, slot, self)
        self._stories[story.story.id] = story
        for item in self._early.pop(story.story.id, ()):
            story.deliver(item)
        return story.run

    def window(self) -> WindowSource:
        """Return what follows the machines of the workers."""
        return FleetWindow(self._log, lambda: self.limit, self.changed)

    # What stories ask.

    async def place(self, story: RemoteStory) -> Link | None:
        """Find a worker for a story, or the one that still has it; None once the story is to stop."""
        chosen = self._chosen.pop(story.story.id, None)
        if chosen is not None and await self._send(story, chosen):
            return chosen
        while True:
            changed, instance = self._changed, story.now.workspace.instance
            holder = self._holder(story.story.id)
            if holder is not None:
                holder.placed[story.story.id] = story.story.needs
                return holder
            if self._context.control.level(story.story.id) >= Level.FINISH:
                return None
            is_awaited = self._is_awaited(instance)
            link = None if is_awaited else self._free_for(story.story)
            if link is not None:
                if await self._begin(story, link):
                    return link
                continue
            with trio.move_on_after(AWAY_SECONDS if is_awaited else math.inf):
                await first_of(changed.wait, self._context.control.raised)

    def _is_awaited(self, instance: str) -> bool:
        """Whether a worker may still come back that had a story when an earlier coordinator died."""
        if not instance or trio.current_time() >= self._awaited_until:
            return False
        is_gone = instance in self._lost or instance in self._roster.replaced
        return not is_gone and self._roster.of_instance(instance) is None

    async def _begin(self, story: RemoteStory, link: Link) -> bool:
        """Record the placing and have the worker begin; false if the worker was lost meanwhile."""
        before, known = story.now.workspace, story.now.step_history.conversation
        fence = before.fence
        talk = await to_thread.run_sync(self.talks.of, story.story.id, known) if known is not None else None
        fresh = known is not None and talk is None and before.worker != link.name
        placed = self._placed(story.story, link, fence, fresh=fresh)
        refused = await self._log.record_unless(
            lambda: None if story.now.workspace.fence == fence else FENCED, placed
        )
        if refused is not None:
            link.placed.pop(story.story.id, None)
            return False
        return await self._send(story, link, talk)

    async def _send(self, story: RemoteStory, link: Link, talk: Talk | None = None) -> bool:
        """Have the worker begin a story that is placed there; false if the worker was lost meanwhile."""
        start, fence = await self._start_of(story.story, link), story.now.workspace.fence
        if start is None:
            link.placed.pop(story.story.id, None)
            return False
        link.carrying[story.story.id] = fence
        link.start(structs.replace(start, fence=fence, talk=talk))
        return True

    async def _start_of(self, story: Story, link: Link) -> Start | None:
        """Bring what a worker needs to begin a story; None if it was lost meanwhile, or cannot take that."""
        tip, left, branches = await to_thread.run_sync(self._commits_for, story)
        here = self._context.at(story.repo)
        try:
            await link.bring(story.repo, {here.base, here.newest_base, tip, left, *branches.values()} - {""})
        except ConnectionError:
            return None
        except ClusterError as error:
            name = self._log.snapshot.repo_name(story.repo)
            of = f" for stories in {name}" if name else ""
            words = f"worker {link.name} is not used{of} for now: {error.message}"
            await self._roster.say_once(f"{link.name} {story.repo}", words)
            return None
        if link.lost:
            return None
        past = self._context.past.get(story.id)
        return Start(
            story=to_json(story),
            fence=0,
            tip=tip,
            left=left,
            branches=branches,
            past=to_builtins(past) if past is not None else None,
        )

    def _commits_for(self, story: Story) -> tuple[str, str, dict[str, str]]:
        """Return the tip of the story's branch, what it left, and the tips of what it builds on. Blocking.

        What it depends on in other repositories is done, and none of its commits are needed.
        """
        repository, tips = self._context.at(story.repo).repository, {}
        for dependency in story.depends_on:
            parent = self._log.snapshot.stories[dependency]
            if parent.repo != story.repo:
                continue
            tip = repository.branch_tip(branch_of(dependency)) or parent.workspace.commit
            if tip:
                tips[branch_of(dependency)] = tip
        tip = repository.branch_tip(branch_of(story.id)) or ""
        return tip, uncommitted_of(repository, story.id) if tip else "", tips

    def has(self, story_id: StoryId, event: Sent) -> bool:
        """Whether the journal has an event of a story already, from before a connection broke."""
        return (story_id, event.at) in self._recorded

    def release(self, story_id: StoryId, *, ended: bool = True) -> None:
        """Free what a story held of a worker; one that has not `ended` looks for another."""
        if ended:
            self._stories.pop(story_id, None)
        self._chosen.pop(story_id, None)
        for link in self._roster.links:
            link.placed.pop(story_id, None)
            link.carrying.pop(story_id, None)
        self.wake()

    async def _keep_aside(self, batch: Batch, link: Link) -> None:
        """Keep the commits of a worker that comes too late under a name of their own, and have it leave."""
        story = self._log.snapshot.stories.get(StoryId(batch.story_id))
        if batch.bundle is not None and story is not None:
            try:
                await link.take(story.repo, batch.bundle)
            except ConnectionError:
                return  # it says that again when it is back, and keeps the commits in its clone
            name, there = f"{self.run_id}/{batch.story_id}/{batch.fence}", self._context.at(story.repo)
            ref = await to_thread.run_sync(keep_fenced, there.repository, name, batch.bundle.newest)
            words = f"worker {link.name} came back too late; what it did is kept as {ref} and not counted"
            await self._log.record(ev.Noted(story_id=StoryId(batch.story_id), message=words))
        link.acknowledge(Ack(story_id=batch.story_id, fence=batch.fence, number=batch.number, fenced=True))

    # The workers.

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Find workers and keep their links, until cancelled; started once the first ones are there."""
        self._log.subscribe(self._pass_on)
        async with trio.open_nursery() as nursery:
            self._aside = nursery
            nursery.start_soon(self._pass_levels)
            await nursery.start(self._roster.serve, lambda link: nursery.start_soon(self._keep, link))
            self._awaited_until = trio.current_time() + AWAY_SECONDS
            task_status.started()

    async def close(self) -> None:
        """Say to every worker that the run has ended."""
        await self._roster.close()
        for here in self._context.everywhere:
            await to_thread.run_sync(forget_travel, here.repository)

    async def _keep(self, link: Link) -> None:
        """Serve one link to its end; its stories are lost then."""
        async with trio.open_nursery() as aside:
            reason = await link.serve(
                self._stream, self._levels, lambda heard: self._heard(link, heard, aside)
            )
            aside.cancel_scope.cancel()
        self._lost.add(link.instance)
        self._roster.links.remove(link)
        for story_id in list(link.placed):
            if story_id in self._stories:
                self._stories[story_id].deliver(Lost(reason=reason, link=link))
        self.wake()

    def _heard(self, link: Link, heard: Heard, aside: trio.Nursery) -> None:
        """Pass on what a worker has said."""
        self._show(link, heard, aside)
        for batch in heard.batches:
            story = self._stories.get(batch.story_id)
            now = self._log.snapshot.stories.get(StoryId(batch.story_id))
            placed = None if now is None else (now.workspace.fence, now.workspace.instance)
            if placed != (batch.fence, link.instance):
                aside.start_soon(self._keep_aside, batch, link)
            elif story is not None:
                story.deliver(batch)
            else:
                self._early.setdefault(batch.story_id, []).append(batch)
        for gone in heard.gone:
            story = self._stories.get(gone.story_id)
            if story is not None:
                story.deliver(gone)
            else:
                self._early.setdefault(gone.story_id, []).append(gone)
        self.wake()

    def _show(self, link: Link, heard: Heard, aside: trio.Nursery) -> None:
        """Have the user see what happens on a worker, as if it were here."""
        if heard.active:
            self._log.touch()
        folder = autopilot_dir(self._home.common_dir)
        for part in heard.logs:
            write_log_part(folder, self.run_id, part)
        for words in heard.notes:
            aside.start_soon(self._roster.say_once, f"{link.name} {words}", f"worker {link.name}: {words}")
        for line in heard.lines:
            if StoryId(line.story_id) in self._stories:
                self._log.show(
                    ev.OutputSeen(
                        story_id=StoryId(line.story_id), line=line.line, tools=line.tools, zone=line.zone
                    )
                )

    def _levels(self) -> Levels:
        control = self._context.control
        return Levels(
            run=(int(control.run_level), control.run_asked_by),
            stories={name: (int(level), by) for name, (level, by) in control.stories.items()},
        )

    async def _pass_levels(self) -> None:
        while True:
            await self._context.control.raised()
            for link in self._roster.links:
                link.wake()

    def _pass_on(self, event: ev.Event, _run: RunSnapshot) -> None:
        """Have every worker get an event of the run."""
        if isinstance(event.body, ev.OutputSeen):
            return
        self._stream.events.append(sent(event))
        self._recorded.add((ev.story_of(event.body), event.at))
        for link in self._roster.links:
            link.pass_on()

    def wake(self) -> None:
        """Have those look again who wait for a worker."""
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until a worker came, went, or said something."""
        await self._changed.wait()

    @property
    def limit(self) -> Limit:
        """How many stories all workers allow together, and why."""
        machines = [(link, link.machine) for link in self._roster.links if not link.lost]
        if not machines:
            return Limit(stories=1, tier=Tier.UNKNOWN, reason="no worker yet")
        worst = max((Tier(machine.tier) for _, machine in machines), key=severity)
        slots = sum(link.slots for link, _ in machines)
        return Limit(stories=max(1, slots), tier=worst, reason=count(len(machines), "worker"))


@asynccontextmanager
async def open_fleet(
    hub: Hub, context: RunContext, events: Sequence[ev.Event], *, examine: bool
) -> AsyncIterator[Fleet]:
    """Have the workers of a cluster serve the run for the time of the block; `examine` asks their doctor."""
    fleet = Fleet(hub, context, events, examine=examine)
    async with trio.open_nursery() as nursery:
        await nursery.start(fleet.serve)
        try:
            yield fleet
        finally:
            await fleet.close()
            nursery.cancel_scope.cancel()

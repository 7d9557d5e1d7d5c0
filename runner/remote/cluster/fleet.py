"""The workers of a run: found, greeted, given stories, and replaced when they are lost.

Everything that a run needs of a cluster is behind `Carriers`: the orchestrator does not know where stories
are. The journal is on the coordinator alone; every worker gets a copy of all events, so that budgets, limits
and dependencies look the same everywhere.
"""

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

import trio
from msgspec import to_builtins
from trio import to_thread

from isolation.git.clones.travel import forget_travel, keep_fenced, known
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir, repository_hash, run_dir
from runner.core.events import events as ev
from runner.core.events.cluster import StoryPlaced
from runner.core.events.story_json import to_json
from runner.core.model import RunSnapshot, Story, StoryId, Tier
from runner.core.schedule.tiers import severity
from runner.core.schedule.window import Limit
from runner.core.text.names import branch_of
from runner.core.text.words import count
from runner.remote.cluster.fleet_window import FleetWindow
from runner.remote.cluster.link import Link, Stream
from runner.remote.cluster.placement import Room, choose, unplaced
from runner.remote.cluster.remote_story import FENCED, Lost, RemoteStory
from runner.remote.cluster.travelling import settings_for_workers, write_log_part
from runner.remote.cluster.wire.hub import Hub
from runner.remote.cluster.wire.messages import (
    PROTOCOL,
    Ack,
    Batch,
    Close,
    ClusterError,
    Gone,
    Greeting,
    Heard,
    Hello,
    Levels,
    Open,
    Opened,
    Prepare,
    Prepared,
    Sent,
    Start,
    sent,
)
from runner.run.carry.carriers import WindowSource
from runner.story.context.context import RunContext, StoryContext
from runner.story.context.stop import Level
from runner.story.slot import Slot

FIND_SECONDS = 1.0
GREET_SECONDS = 10.0
OPEN_SECONDS = 600.0
CLOSE_SECONDS = 20.0


class Fleet:
    """Carries stories on workers."""

    prepares_ahead = False

    def __init__(self, hub: Hub, context: RunContext, events: Sequence[ev.Event], *, examine: bool) -> None:
        self._examine = examine
        self.repository: Repository = context.repository
        self.run_id = context.log.snapshot.run_id
        self._hub = hub
        self._context = context
        self._log = context.log
        self._stream = Stream([sent(event) for event in events])
        self._recorded = {(ev.story_of(event.body), event.at) for event in events}
        self._links: dict[str, Link] = {}
        self._stories: dict[str, RemoteStory] = {}
        self._early: dict[str, list[Batch | Gone]] = {}
        """What workers said about stories that a resumed run has not taken up yet."""
        self._refused: dict[str, str] = {}
        self._greeted: set[str] = set()
        self._changed = trio.Event()
        self._key = repository_hash(context.repository.common_dir)
        self._folder = run_dir(context.repository.common_dir, self.run_id) / "cluster"
        self._nursery: trio.Nursery | None = None

    # What the orchestrator asks.

    def unplaced(self, stories: Sequence[Story]) -> Mapping[StoryId, str]:
        """Return which of these no worker can take now."""
        return unplaced(stories, self._rooms())

    def _rooms(self) -> list[Room]:
        """Return what the workers have; a story with its result only cleans up, as on this machine."""
        stories = self._log.snapshot.stories
        return [link.room(lambda name: stories[StoryId(name)].status.final) for link in self._links.values()]

    def intent(self, story: Story) -> Sequence[ev.Body]:  # noqa: ARG002  the worker records its own
        """Return nothing: the workspace is the worker's to plan."""
        return ()

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
        workspace = story.now.workspace
        for link in self._links.values():
            if link.instance == workspace.instance and link.carrying.get(story.story.id) == workspace.fence:
                link.placed[story.story.id] = story.story.needs
                return link
        while True:
            changed = self._changed
            room = choose(story.story.needs, self._rooms())
            if self._context.control.level(story.story.id) >= Level.FINISH:
                return None
            if room is not None:
                link = next(each for each in self._links.values() if each.instance == room.name)
                link.placed[story.story.id] = story.story.needs
                if await self._begin(story, link):
                    return link
                link.placed.pop(story.story.id, None)
                continue
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_then_cancel, changed.wait, nursery.cancel_scope)
                nursery.start_soon(_then_cancel, self._context.control.raised, nursery.cancel_scope)

    async def _begin(self, story: RemoteStory, link: Link) -> bool:
        """Record the placing and have the worker begin; false if the worker was lost meanwhile."""
        fence = story.now.workspace.fence
        placed = StoryPlaced(
            story_id=story.story.id, worker=link.name, instance=link.instance, fence=fence + 1
        )
        refused = await self._log.record_unless(
            lambda: None if story.now.workspace.fence == fence else FENCED, placed
        )
        if refused is not None:
            return False
        tip, branches = await to_thread.run_sync(self._commits_for, story)
        run = self._log.snapshot
        needed = {run.base, run.followed, tip, *branches.values()} - {""}
        bundle = ""
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_lost, link, scope)
                bundle = await link.bring(needed)
                nursery.cancel_scope.cancel()
        if link.lost:
            return False
        past = self._context.past.get(story.story.id)
        link.carrying[story.story.id] = fence + 1
        link.start(
            Start(
                story=to_json(story.story),
                fence=fence + 1,
                tip=tip,
                branches=branches,
                bundle=bundle,
                past=to_builtins(past) if past is not None else None,
            )
        )
        return True

    def _commits_for(self, story: RemoteStory) -> tuple[str, dict[str, str]]:
        """Return the tip of the story's own branch, and those of what it depends on. Blocking."""
        tips = {}
        for dependency in story.story.depends_on:
            recorded = self._log.snapshot.stories[dependency].workspace.commit
            tip = self.repository.branch_tip(branch_of(dependency)) or recorded
            if tip:
                tips[branch_of(dependency)] = tip
        return self.repository.branch_tip(branch_of(story.story.id)) or "", tips

    def has(self, story_id: StoryId, event: Sent) -> bool:
        """Whether the journal has an event of a story already, from before a connection broke."""
        return (story_id, event.at) in self._recorded

    def release(self, story_id: StoryId, *, ended: bool = True) -> None:
        """Free what a story held of a worker; one that has not `ended` looks for another."""
        if ended:
            self._stories.pop(story_id, None)
        for link in self._links.values():
            link.placed.pop(story_id, None)
            link.carrying.pop(story_id, None)
        self.wake()

    async def _keep_aside(self, batch: Batch, link: Link) -> None:
        """Keep the commits of a worker that comes too late under a name of their own, and have it leave."""
        if batch.bundle is not None:
            path = await link.fetch(batch.bundle)
            name = f"{self.run_id}/{batch.story_id}/{batch.fence}"
            ref = await to_thread.run_sync(keep_fenced, self.repository, path, name, batch.bundle.tip)
            path.unlink(missing_ok=True)
            words = f"worker {link.name} came back too late; what it did is kept as {ref} and not counted"
            await self._log.record(ev.Noted(story_id=StoryId(batch.story_id), message=words))
        link.acknowledge(Ack(story_id=batch.story_id, fence=batch.fence, number=batch.number, fenced=True))

    # The workers.

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Find workers and keep their links, until cancelled; started once the first ones are there."""
        self._log.subscribe(self._pass_on)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._pass_levels)
            await self._find(later=False)
            task_status.started()
            while True:
                await trio.sleep(FIND_SECONDS)
                await self._find()

    async def close(self) -> None:
        """Say to every worker that the run has ended."""
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            async with trio.open_nursery() as nursery:
                for link in self._links.values():
                    nursery.start_soon(self._close, link)
        await to_thread.run_sync(forget_travel, self.repository)

    async def _close(self, link: Link) -> None:
        try:
            await self._hub.ask(link.address, Close(run_id=self.run_id), limit=CLOSE_SECONDS)
        except (ConnectionError, ClusterError):
            return  # it ends by itself when it hears nothing

    async def _find(self, *, later: bool = True) -> None:
        """Greet the workers that are new; the first ones are waited for."""
        try:
            addresses = await self._hub.workers()
        except ConnectionError:
            return
        async with trio.open_nursery() as nursery:
            greeters = self._nursery if later and self._nursery is not None else nursery
            for address in addresses:
                if address not in self._links and address not in self._greeted:
                    self._greeted.add(address)
                    greeters.start_soon(self._greet, address)

    async def _greet(self, address: str) -> None:
        try:
            hello = Hello(version=version("autopilot-multi"))
            greeting = await self._hub.ask(address, hello, limit=GREET_SECONDS)
            if isinstance(greeting, Greeting):
                await self._join(address, greeting)
        except ConnectionError:
            return  # it is asked again in a second
        except ClusterError as error:
            await self._refuse(address, f"worker {address} is not used: {error.message}")
        finally:
            self._greeted.discard(address)

    async def _refuse(self, address: str, words: str) -> None:
        """Say once why a worker is not used."""
        if self._refused.get(address) != words:
            self._refused[address] = words
            await self._log.record(ev.Noted(message=words))

    async def _join(self, address: str, greeting: Greeting) -> None:
        """Open the run on a worker, and take what it sends from then on."""
        own = version("autopilot-multi")
        if (greeting.version, greeting.protocol) != (own, PROTOCOL):
            raise ClusterError(
                f"it has autopilot-multi {greeting.version} (protocol {greeting.protocol}), and this "
                f"coordinator {own} (protocol {PROTOCOL}); install the same version on both"
            )
        if greeting.run_id not in {"", self.run_id}:
            raise ClusterError(f"it serves run {greeting.run_id}")
        link = Link(
            hub=self._hub,
            address=address,
            greeting=greeting,
            run_id=self.run_id,
            repository=self.repository,
            key=self._key,
            folder=self._folder,
            silence=self._context.settings.cluster_timeout,
        )
        opened = await self._open(link)
        link.carrying, link.machine = dict(opened.carrying), opened.machine
        self._links[address] = link
        for story_id, fence in opened.carrying.items():
            story = self._log.snapshot.stories.get(StoryId(story_id))
            if story is None or story.workspace.fence != fence or story.workspace.instance != link.instance:
                link.fence(story_id, fence)
        if self._nursery is not None:
            self._nursery.start_soon(self._keep, link)
        self.wake()

    async def _open(self, link: Link) -> Opened:
        prepared = await self._hub.ask(link.address, Prepare(repository=self._key), limit=GREET_SECONDS)
        if not isinstance(prepared, Prepared):
            raise ClusterError(f"it answered {type(prepared).__name__}")
        link.known.update(await to_thread.run_sync(known, self.repository, prepared.have))
        settings, run = self._context.settings, self._log.snapshot
        bundle = await link.bring([run.base])
        events = tuple(self._stream.events)
        request = Open(
            run_id=self.run_id,
            repository=self._key,
            base=run.base,
            bundle=bundle,
            settings=settings_for_workers(settings),
            env={name: os.environ[name] for name in settings.cluster_env if name in os.environ},
            identity=await to_thread.run_sync(_identity, self.repository),
            clock=time.time(),
            patience=max(600.0, 4 * settings.cluster_timeout),
            examine=self._examine,
            events=events,
        )
        opened = await self._hub.ask(link.address, request, limit=OPEN_SECONDS)
        if not isinstance(opened, Opened):
            raise ClusterError(f"it answered {type(opened).__name__}")
        link.opened_with(len(events))
        return opened

    async def _keep(self, link: Link) -> None:
        """Serve one link to its end; its stories are lost then."""
        async with trio.open_nursery() as aside:
            reason = await link.serve(
                self._stream, self._levels, lambda heard: self._heard(link, heard, aside)
            )
            aside.cancel_scope.cancel()
        self._links.pop(link.address, None)
        for story_id in list(link.placed):
            if story_id in self._stories:
                self._stories[story_id].deliver(Lost(reason=reason))
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
        folder = autopilot_dir(self.repository.common_dir)
        for part in heard.logs:
            write_log_part(folder, self.run_id, part)
        for words in heard.notes:
            aside.start_soon(self._refuse, f"{link.name} {words}", f"worker {link.name}: {words}")
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
            for link in self._links.values():
                link.wake()

    def _pass_on(self, event: ev.Event, _run: RunSnapshot) -> None:
        """Have every worker get an event of the run."""
        if isinstance(event.body, ev.OutputSeen):
            return
        self._stream.events.append(sent(event))
        self._recorded.add((ev.story_of(event.body), event.at))
        for link in self._links.values():
            link.wake()

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
        machines = [(link, link.machine) for link in self._links.values() if not link.lost]
        if not machines:
            return Limit(stories=1, tier=Tier.UNKNOWN, reason="no worker yet")
        worst = max((Tier(machine.tier) for _, machine in machines), key=severity)
        slots = sum(link.slots for link, _ in machines)
        return Limit(stories=max(1, slots), tier=worst, reason=count(len(machines), "worker"))


def _identity(repository: Repository) -> tuple[str, str] | None:
    """Return the name and address under which the user commits; None if git has none."""
    found = repository.run("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT", check=False)
    if found.returncode != 0:
        return None
    name, _, rest = found.stdout.partition(" <")
    return name, rest.partition(">")[0]


async def _then_cancel(wait: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await wait()
    scope.cancel()


async def _cancel_when_lost(link: Link, scope: trio.CancelScope) -> None:
    await link.ended.wait()
    scope.cancel()


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

"""One run as a worker serves it: its clone, keeper and machine, and the stories that it works on.

The worker has no journal of its own to speak of. Its copy of the run's events comes from the coordinator, and
what its stories record goes there. If the coordinator falls silent, sessions continue, and what they
record waits; after a long silence everything ends, and what was done stays in the clone.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio
from msgspec import structs
from trio import to_thread

from isolation.decoding import from_values
from isolation.keeper.client import Keeper, open_keeper
from isolation.paths import keepers_lock_path, require_component, run_dir
from runner.agents.catalog import PROGRAMS, workers_of
from runner.core.agent_settings import AgentSettings
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.events.run_stories import stories_of
from runner.core.events.story_json import from_json
from runner.core.model import RunId, Story, StoryId
from runner.core.progress.repositories import HOME
from runner.core.settings import Settings
from runner.core.text.redaction import Redactor
from runner.machine.probe import Probe
from runner.plan.guard import FULL
from runner.plan.repositories.site import Site
from runner.plan.settings.json_form import redactor_for
from runner.records.event_log import EventLog
from runner.records.history import Past
from runner.records.telemetry import load_spending, records_checkout
from runner.remote.cluster.travelling import settings_here
from runner.remote.cluster.wire.messages import (
    ClusterError,
    Gone,
    Heard,
    Listen,
    Machine,
    Open,
    Opened,
    Start,
    Update,
    Updated,
    received,
)
from runner.remote.cluster.worker.clone import Clone
from runner.remote.cluster.worker.doctor import clone_findings, machine_findings
from runner.remote.cluster.worker.machine import MachineWatch
from runner.remote.cluster.worker.outbox import Outbox
from runner.remote.cluster.worker.parts import Parts, RunClone, clones_of, enforcements_of, open_parts
from runner.remote.cluster.worker.shared_budget import SharedLedger
from runner.remote.cluster.worker.story import WorkedStory
from runner.run.setup import Assignment, exclude_byproducts, make_context
from runner.run.several.acquisition import acquired
from runner.story.context.context import RunContext
from runner.story.context.stop import Level, StopControl
from runner.story.session.environment import seal_git_commands

WATCH_SECONDS = 2.0
SKEW_SECONDS = 2.0
"""A difference between the clocks of two machines that the way of a message may explain."""


class _Replica:
    """Where events of the copy go: nowhere, since the coordinator has them."""

    def append(self, events: Sequence[ev.Event]) -> None:
        """Keep nothing."""


class WorkerRun:
    """Serves one run until it is closed; made by `serve`."""

    def __init__(self, request: Open, clones: Mapping[str, Clone], slots: int) -> None:
        self.run_id = RunId(request.run_id)
        self._clones = clones
        self.closed = trio.Event()
        self.over = trio.Event()
        self.failure: Exception | None = None
        self._request = request
        self._slots = slots
        self._settings: Settings = settings_here(request.places[HOME].settings)
        self._control = StopControl()
        self._received = 0
        self._all: tuple[Story, ...] = ()
        self._stories: dict[str, WorkedStory] = {}
        self._expected: dict[str, WorkedStory] = {}
        """Stories that may come next, for which a worktree is made meanwhile."""
        self._leaving: dict[str, WorkedStory] = {}
        """Stories for which one was made in vain, until that is undone."""
        self._ended: dict[str, int] = {}
        self._clock = _clock(request.clock)
        self._redactor = Redactor()
        self._nursery: trio.Nursery | None = None
        self._context: RunContext | None = None
        self._parts: Parts | None = None
        self._outbox: Outbox | None = None
        self._log: EventLog | None = None

    @property
    def outbox(self) -> Outbox:
        """What is to be said to the coordinator."""
        assert self._outbox is not None  # noqa: S101  the run is open
        return self._outbox

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the run, and serve it until it is closed or the coordinator is gone for good."""
        request = self._request
        clones = await to_thread.run_sync(clones_of, self._clones, request.places)
        await to_thread.run_sync(clones[HOME].begin)
        repository = clones[HOME].site.repository
        others = [each.site.repository for name, each in clones.items() if name != HOME]
        os.environ.update(request.env)
        try:
            async with acquired(repository, self.run_id, others=others):
                self._take_events(request)
                keeping = open_keeper(
                    alive_lock=keepers_lock_path(repository.common_dir),
                    more=[keepers_lock_path(each.common_dir) for each in others],
                    network=self._settings.seal == FULL,
                )
                async with keeping as keeper:
                    await self._serve(clones, keeper, task_status)
        finally:
            for name in request.env:
                os.environ.pop(name, None)

    def _take_events(self, request: Open) -> None:
        events = [received(each, self.run_id) for each in request.events]
        self._received = len(events)
        snapshot = fold(self.run_id, events)
        if self._log is None:
            self._log = EventLog(store=_Replica(), snapshot=snapshot, wall_clock=self._clock)
        self._log.snapshot = snapshot
        self._all = stories_of(events)

    async def _serve(
        self, clones: Mapping[str, RunClone], keeper: Keeper, task_status: trio.TaskStatus[None]
    ) -> None:
        assert self._log is not None  # noqa: S101  the events were taken
        settings, home = self._settings, clones[HOME].site
        repository, root = home.repository, home.worktree_root
        _require_agents(self._all, settings)
        plans = await to_thread.run_sync(enforcements_of, clones, self._all)
        assignment = Assignment(
            repository=repository,
            settings=settings,
            worktree_root=root,
            stories=self._all,
            workers={story.id: workers_of(story, settings) for story in self._all},
            enforcement=plans[HOME],
            sites={name: each.site for name, each in clones.items() if name != HOME},
            enforcements=plans,
        )
        await to_thread.run_sync(exclude_byproducts, assignment)
        self._redactor = await to_thread.run_sync(redactor_for, settings, os.environ, repository)
        context = make_context(
            assignment, log=self._log, keeper=keeper, control=self._control, shared_tree=None, past={}
        )
        log, spending = self._log, records_checkout(repository.paths)
        ledger = SharedLedger(settings, lambda: log.snapshot, lambda: load_spending(spending))
        self._context = structs.replace(context, budget=ledger)
        await to_thread.run_sync(seal_git_commands, self._context)
        await keeper.ready()
        watch = MachineWatch(self._context, self._slots, partial(Probe(PROGRAMS), root))
        self._outbox = Outbox(repository.common_dir, self.run_id, await watch.look(()))
        async with (
            open_parts(self._context, clones, plans, self._all, self._examine_clone) as self._parts,
            trio.open_nursery() as nursery,
        ):
            self._nursery = nursery
            nursery.start_soon(watch.keep, self._running, self._machine)
            nursery.start_soon(self._watch_silence)
            if self._request.examine:
                nursery.start_soon(self._examine, machine_findings, home)
            task_status.started()
            await self.closed.wait()
            nursery.cancel_scope.cancel()

    # What the coordinator asks.

    def opened(self, request: Open) -> Opened:
        """Answer a coordinator that opens the run, perhaps not for the first time."""
        if self._received != len(request.events) or request is not self._request:
            self._take_events(request)
            assert self._log is not None  # noqa: S101  as above
            for story in self._stories.values():
                story.start_over(self._log.snapshot)
        self._expect(())
        self.outbox.start_over()
        return Opened(
            carrying={name: story.fence for name, story in self._stories.items()},
            machine=self.outbox.machine,
        )

    async def update(self, request: Update) -> Updated:
        """Take what is new at the coordinator."""
        self.outbox.heard_at = trio.current_time()
        fresh = request.events[max(0, self._received - request.first) :]
        if request.first <= self._received:
            for message in fresh:
                self._follow(received(message, self.run_id))
            self._received = max(self._received, request.first + len(request.events))
        self._raise(request)
        for ack in request.acks:
            self.outbox.acknowledge(ack)
        for story_id, fence in request.fenced:
            if story_id in self._stories and self._stories[story_id].fence == fence:
                self._stories[story_id].fenced()
        for start in request.starts:
            self._start(start)
        if request.expected is not None:
            self._expect(request.expected)
        return Updated(received=self._received)

    async def listen(self, request: Listen) -> Heard:
        """Say what is new here."""
        if request.update is not None:
            await self.update(request.update)
        last = max((story.last_activity for story in self._stories.values()), default=0.0)
        self.outbox.active = self.outbox.active or last > self.outbox.heard_at
        return structs.replace(await self.outbox.listen(request), received=self._received)

    def piece(self, name: str, offset: int, size: int) -> bytes:
        """Return a part of a bundle that waits for the coordinator. Blocking."""
        folder = run_dir(self._clones[HOME].open().common_dir, self.run_id) / "cluster"
        with (folder / require_component(name, "bundle")).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def is_silent(self, seconds: float) -> bool:
        """Whether the coordinator has not been heard of for so long."""
        return self._outbox is not None and trio.current_time() - self._outbox.heard_at > seconds

    def _follow(self, event: ev.Event) -> None:
        """Apply an event of the run to the copy, and to what every other story knows."""
        assert self._log is not None and self._context is not None  # noqa: S101, PT018  the run is open
        self._log.follow(event)
        for story in (*self._stories.values(), *self._expected.values()):
            story.follow(event)
        if isinstance(event.body, ev.SessionEnded) and isinstance(self._context.budget, SharedLedger):
            self._context.budget.wake()

    def _raise(self, request: Update) -> None:
        level, by = request.levels.run
        if level > self._control.run_level:
            self._control.raise_run(Level(level), by)
        for name, (raised, words) in request.levels.stories.items():
            self._control.raise_story(StoryId(name), Level(raised), words)

    def _start(self, start: Start) -> None:
        """Begin a story; one that was begun with this fence, or a newer one, is left alone."""
        name = from_json(start.story).id
        before = self._stories.get(name)
        newest = max(self._ended.get(name, 0), before.fence if before else 0)
        if start.fence <= newest or self._context is None:
            return
        if before is not None:
            before.fenced()
        self._control.forget(name)
        expected = self._expected.get(name)
        if expected is not None and _expectation(expected.start) == _expectation(start):
            worked = self._expected.pop(name)
        else:
            self._dismiss(name)
            worked = self._take_in(start, after=before or self._leaving.get(name))
        self._stories[name] = worked
        worked.begin(start.fence, self._context.log.snapshot)

    def _expect(self, starts: Sequence[Start]) -> None:
        """Prepare for these stories, and no longer for others."""
        wanted: dict[str, Start] = {from_json(start.story).id: start for start in starts}
        for name, story in list(self._expected.items()):
            if name not in wanted or _expectation(wanted[name]) != _expectation(story.start):
                self._dismiss(name)
        for name, start in wanted.items():
            if name not in self._expected and name not in self._stories and name not in self._ended:
                self._expected[name] = self._take_in(start, after=self._leaving.get(name))

    def _dismiss(self, name: str) -> None:
        """Undo what was prepared for a story, if anything was."""
        expected = self._expected.pop(name, None)
        if expected is not None:
            self._leaving[name] = expected
            expected.dismiss()

    def _take_in(self, start: Start, *, after: WorkedStory | None) -> WorkedStory:
        """Begin to make a story ready, once `after` has left."""
        assert self._nursery is not None and self._parts is not None  # noqa: S101, PT018  the run is open
        story = from_json(start.story)
        past = from_values(start.past, Past) if start.past is not None else None
        worked = WorkedStory(
            story=story,
            start=start,
            parts=self._parts,
            past={} if past is None else {story.id: past},
            outbox=self.outbox,
            wall_clock=self._clock,
            redactor=self._redactor,
        )
        self._nursery.start_soon(self._work, worked, after)
        return worked

    async def _work(self, worked: WorkedStory, after: WorkedStory | None) -> None:
        name = worked.story.id
        trouble, has_left = "", False
        try:
            if after is not None:
                await after.over.wait()
            trouble = await worked.run()
            has_left = True
        finally:
            if not has_left:  # this worker is ending, and must not get the story again
                self.outbox.machine = structs.replace(self.outbox.machine, stories=0)
                trouble = "it is ending"
            for known in (self._stories, self._expected, self._leaving):
                if known.get(name) is worked:
                    del known[name]
            worked.over.set()
            if worked.fence:
                self._ended[name] = max(self._ended.get(name, 0), worked.fence)
                gone = Gone(story_id=name, fence=worked.fence, trouble=trouble, last=worked.last)
                self.outbox.gone(gone)

    # What runs beside the stories.

    def _running(self) -> tuple[StoryId, ...]:
        return tuple(StoryId(name) for name in self._stories)

    def _machine(self, machine: Machine) -> None:
        self.outbox.machine = machine

    def _examine_clone(self, site: Site) -> None:
        """Have the doctor look at the clone of another repository, in which a first story is to work."""
        if self._request.examine and self._nursery is not None:
            self._nursery.start_soon(self._examine, clone_findings, site)

    async def _examine(self, look: Callable[[Site, Sequence[Story]], list[str]], site: Site) -> None:
        """Say what would stop stories here, and in which repository if there are several."""
        assert self._log is not None  # noqa: S101  the run is open
        name = self._log.snapshot.repo_name(site.name)
        for words in await to_thread.run_sync(look, site, self._all):
            self.outbox.note(f"{words} (in {name})" if name else words)

    async def _watch_silence(self) -> None:
        """End the run when its coordinator has not been heard of for very long."""
        while True:
            await trio.sleep(WATCH_SECONDS)
            if trio.current_time() - self.outbox.heard_at > self._request.patience:
                self.closed.set()


def _require_agents(stories: Sequence[Story], settings: Settings) -> None:
    """Raise if an agent of the user's own is not here; each attempt of its stories would fail at once."""
    for story in stories:
        for worker in workers_of(story, settings).order:
            own = settings.agents.get(worker.agent.name, AgentSettings())
            program = next(iter(own.argv or own.acp), "")
            # A path with a folder may be one of the story's worktree.
            if program and os.sep not in program and shutil.which(program, path=own.env.get("PATH")) is None:
                name = worker.agent.name
                raise ClusterError(
                    f"story {story.id}: agent '{name}' cannot start: no program '{program}' on PATH there"
                )


def _expectation(start: Start) -> Start:
    """Return what must be the same for a story that was expected and is placed now."""
    return structs.replace(start, fence=0)


def _clock(coordinator: float) -> Callable[[], float] | None:
    """Return the coordinator's time of day; None if the clocks agree."""
    ahead = coordinator - time.time()
    return (lambda: time.time() + ahead) if abs(ahead) > SKEW_SECONDS else None

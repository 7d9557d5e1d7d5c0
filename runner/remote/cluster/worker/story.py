"""One story on a worker: the walk of any story, with a log that goes to the coordinator.

A story that is only expected has its worktree made, and waits. Nothing of that is recorded: it is undone if
the story goes elsewhere, and what a killed worker leaves of it is moved out of the way when a story needs it.
"""

from collections.abc import Callable, Mapping

import trio
from msgspec import structs
from msgspec.structs import replace
from trio import to_thread

from isolation.errors import IsolationError
from isolation.git.clones.travel import keep_fenced
from isolation.paths import run_dir
from runner.agents.catalog import workers_of
from runner.core.errors import RunnerError
from runner.core.events import events as ev
from runner.core.events.fold import apply
from runner.core.model import RunSnapshot, Story, StoryId
from runner.core.text.names import branch_of
from runner.core.text.redaction import Redactor
from runner.records.event_log import EventLog
from runner.records.history import Past
from runner.remote.cluster.talks import put_talk, take_talk
from runner.remote.cluster.wire.messages import Line, Sent, Start, Talk
from runner.remote.cluster.worker.outbox import FencedError, Outbox
from runner.remote.cluster.worker.parts import Parts
from runner.remote.cluster.worker.relay import Relay
from runner.story.context.context import story_context
from runner.story.pipeline import Pipeline
from runner.story.slot import Slot
from runner.story.workspace import intent


class WorkedStory:
    """A story that this worker expects, and works on once it has a fence; `over` is set when it has left."""

    def __init__(
        self,
        *,
        story: Story,
        start: Start,
        parts: Parts,
        past: Mapping[StoryId, Past],
        outbox: Outbox,
        wall_clock: Callable[[], float] | None,
        redactor: Redactor,
    ) -> None:
        self.story = story
        self.over = trio.Event()
        self.start = start
        self._parts = parts
        self._outbox = outbox
        self._scope = trio.CancelScope()
        self._is_fenced = False
        run = structs.replace(parts.outline(story.repo), past=past)
        self._workers = workers_of(story, run.settings)
        self._left, self._leaving = trio.open_memory_channel[StoryId](1)
        self._slot = Slot(left=self._left, story=story)
        snapshot = run.log.snapshot
        self._relay = Relay(
            story_id=story.id,
            outbox=outbox,
            repository=run.repository,
            worktree=run.workspace_path(story.id),
            folder=run_dir(run.home.common_dir, snapshot.run_id) / "cluster",
            known=[
                commit for commit in (run.base, start.tip, start.left, *start.branches.values()) if commit
            ],
            talk=self._talk,
        )
        self._log = EventLog(
            store=self._relay,
            snapshot=snapshot,
            wall_clock=wall_clock,
            redactor=redactor,
            calls_back=True,
        )
        self._run = structs.replace(run, log=self._log)
        self._log.subscribe(self._say, ev.OutputSeen)

    @property
    def fence(self) -> int:
        """The number of its placing; 0 while it is only expected."""
        return self._relay.fence

    @property
    def last(self) -> tuple[Sent, ...]:
        """What it recorded last, when nothing waited for it any more."""
        return self._relay.last

    def begin(self, fence: int, snapshot: RunSnapshot) -> None:
        """Work on the story from here on: it was placed here."""
        self._relay.fence = fence
        self._log.snapshot = snapshot
        self._outbox.begin(self.story.id)
        # That it was placed here is durable, and whatever is in the way of another placing is moved aside.
        self._log.defer(intent(self.story, self._run))
        self._slot.grant(self.story)

    def dismiss(self) -> None:
        """Undo what was prepared for a story that is not expected any more."""
        self._scope.cancel()

    @property
    def last_activity(self) -> float:
        """When a session of the story last showed a sign of life, on trio's clock."""
        return self._log.last_activity

    def follow(self, event: ev.Event) -> None:
        """Apply what happened elsewhere; what happens to this story is recorded here."""
        body = event.body
        if ev.story_of(body) == self.story.id:
            return
        if isinstance(body, ev.RunResumed):  # it continues here as it was
            others = tuple(name for name in body.requeued if name != self.story.id)
            event = replace(event, body=replace(body, requeued=others))
        self._log.snapshot = apply(self._log.snapshot, event)

    def start_over(self, snapshot: RunSnapshot) -> None:
        """Take the run as another coordinator has it, and the story as it is here."""
        own = self._log.snapshot.stories[self.story.id]
        self._log.snapshot = replace(snapshot, stories={**snapshot.stories, self.story.id: own})

    def fenced(self) -> None:
        """Leave the story: it was placed elsewhere."""
        self._is_fenced = True
        self._outbox.fence(self.story.id, self.fence)
        self._scope.cancel()

    async def run(self) -> str:
        """Carry the story to its result; return why it has none, if so."""
        trouble = ""
        with self._left, self._leaving, self._scope:
            try:
                await self._carry()
            except FencedError:
                self._is_fenced = True
            except (IsolationError, RunnerError) as error:
                trouble = error.message
        if self._is_fenced:
            with trio.CancelScope(shield=True):
                await to_thread.run_sync(self._keep_aside)
        return trouble

    async def _carry(self) -> None:
        story, start = self.story, self.start
        opened = await self._parts.open(story.repo)
        self._run = run = structs.replace(opened, log=self._log, past=self._run.past)
        make_room = (run.repository, run.worktree_root, story.id, start)
        await to_thread.run_sync(self._parts.clone(story.repo).make_room, *make_room)
        if start.talk is not None:
            await to_thread.run_sync(self._continue_talk, start.talk)
        context = story_context(story, self._workers, run)
        await Pipeline(context, interrupted=False, slot=self._slot).run()

    def _talk(self) -> Talk | None:
        """Return the agent's conversation for another machine. Blocking."""
        known = self._log.snapshot.stories[self.story.id].step_history.conversation
        return take_talk(known, self._workers) if known is not None else None

    def _continue_talk(self, talk: Talk) -> None:
        """Put the conversation where the sessions of this machine find it, or begin another. Blocking."""
        path = self._run.workspace_path(self.story.id)
        if put_talk(talk, self._workers, self._run.write_guard.inside(path, path)):
            return
        run = self._log.snapshot
        own = run.stories[self.story.id]
        fresh = replace(own, step_history=replace(own.step_history, conversation=None))
        self._log.snapshot = replace(run, stories={**run.stories, self.story.id: fresh})

    def _keep_aside(self) -> None:
        """Keep what a story committed here that now runs elsewhere. Blocking."""
        repository = self._run.repository
        tip = repository.branch_tip(branch_of(self.story.id))
        if tip is not None and tip != self.start.tip:
            name = f"{self._log.snapshot.run_id}/{self.story.id}/{self.fence}"
            keep_fenced(repository, name, tip)

    def _say(self, event: ev.Event, _run: RunSnapshot) -> None:
        body = event.body
        if isinstance(body, ev.OutputSeen):
            self._outbox.line(Line(story_id=body.story_id, line=body.line, tools=body.tools, zone=body.zone))

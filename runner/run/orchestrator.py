"""The nursery of stories: which story starts when, how many run side by side, and how the run ends.

Invariants:

- The window decides how many stories may run; shrinking it never ends one that runs.
- What a story is about to do is durable before its task starts: its start and the intent of its workspace
  are recorded together.
- A story's crash is recorded as that story's failure and cancels no other story.
- When `orchestrate` returns, nothing it started still runs, and every story has its result.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import trio
from msgspec import Struct

from runner.agents.workers import Workers
from runner.core.errors import RunnerError
from runner.core.events import events as ev
from runner.core.limits.kill_switches import Switch
from runner.core.limits.outage import NEXT, remaining, soonest
from runner.core.model import (
    ContinuePolicy,
    Decision,
    KillSwitch,
    RunSnapshot,
    Status,
    Story,
    StoryId,
    StorySnapshot,
)
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.schedule import ScheduleDecision, decide
from runner.core.schedule.tiers import has_ample_disk
from runner.core.text.instants import clock
from runner.records.journal import Request
from runner.run.base_check import BaseChecks
from runner.run.carry.carriers import Carriers, LocalCarriers
from runner.run.control.backlog import RunningBacklog
from runner.run.control.changes import BacklogChanges
from runner.run.control.service import RequestService
from runner.story import results
from runner.story.context.context import RunContext, story_context
from runner.story.context.stop import Level
from runner.story.flow.decisions import answer_event
from runner.story.slot import Slot

PAUSE_SECONDS = 1.0
MOST_AHEAD = 3
"""How many worktrees may be prepared for stories that wait for a slot."""

PAUSED = "the run is paused (`autopilot-multi unpause`)"

_CHANGED = KillSwitch(name="changed", detail="what was decided on has changed", hint="")
"""Keeps a decision from being recorded; it is recorded nowhere itself."""

_CHANGES_ADMISSION = (
    ev.StoryFinished,
    ev.WorkspaceOpened,
    ev.WindowChanged,
    ev.AdmissionEnded,
    ev.StoryRequeued,
    ev.SpiralSeen,
)


class World(Struct, frozen=True, kw_only=True):
    """What the orchestrator asks of the outside; all of it blocks and is called in a thread.

    `attended` returns whether the user may still answer a decision while the run is active; None if no user
    is asked.
    """

    sample: Callable[[], ResourceSample]
    requests: Callable[[int], Sequence[Request]]
    attended: Callable[[], bool] | None = None


class Orchestrator:
    """Carries an ordered backlog; one instance per run."""

    def __init__(
        self,
        *,
        order: Sequence[Story],
        workers: Mapping[StoryId, Workers],
        context: RunContext,
        world: World,
        base: BaseChecks | None = None,
        carriers: Carriers | None = None,
    ) -> None:
        self._backlog = RunningBacklog(order, workers)
        self._context = context
        self._world = world
        self._base = base
        self._carriers = carriers or LocalCarriers(context, world.sample)
        self._changed = trio.Event()
        self._active: Counter[StoryId] = Counter()
        self._ahead: dict[StoryId, Slot] = {}
        self._based: set[StoryId] = set()
        self._leaving, self._left = trio.open_memory_channel[StoryId](math.inf)
        self._policy = ContinuePolicy(context.settings.continue_)
        self._changes = BacklogChanges(
            context,
            self._backlog,
            is_held=lambda story_id: bool(self._active[story_id]),
            admits=lambda: self._admitting,
            wake=self._wake,
        )

    async def orchestrate(self) -> None:
        """Run until every story has its result."""
        self._context.log.subscribe(self._notice, *_CHANGES_ADMISSION)
        keeper = self._carriers.window()
        window = await keeper.begin()
        service = RequestService(
            context=self._context,
            load=self._world.requests,
            answer=self.answer,
            wake=self._wake,
            changes=self._changes,
        )
        async with trio.open_nursery() as watchers:
            watchers.start_soon(keeper.keep, window)
            watchers.start_soon(service.serve)
            watchers.start_soon(self._watch_deadline)
            watchers.start_soon(self._watch_silence)
            watchers.start_soon(self._watch_stops)
            watchers.start_soon(self._watch_pauses)
            watchers.start_soon(self._watch_departures)
            if self._base is not None:
                watchers.start_soon(self._base.run, self._wake)
            async with trio.open_nursery() as stories:
                await self._admit(stories)
            watchers.cancel_scope.cancel()
        await self._close_admission()

    async def _admit(self, nursery: trio.Nursery) -> None:
        """Start what may start, whenever anything changes, until nothing is left to start."""
        while not self._settled():
            changed = self._changed
            log = self._context.log
            await self._end_with_cohort()
            await self._stop_unstarted()
            order = self._relevant_stories()
            statuses = {story.id: log.snapshot.stories[story.id].status for story in order}
            for story_id in [each for each in self._ahead if statuses[each].final]:
                self._withdraw(story_id)
            decision, coming = self._decide(order, statuses)
            if await self._follow_base(decision) or await self._read_again(decision):
                continue
            if decision.queue or decision.skip:
                await self._queue_and_skip(decision, statuses)
                continue
            started = await self._start(nursery, decision)
            self._carriers.expect([self._backlog.by_id[name] for name in coming])
            if not started:
                await changed.wait()
        self._changes.closed = True  # at once after the last look, so that no request falls between
        for story_id in tuple(self._ahead):
            self._withdraw(story_id)

    def _decide(
        self, order: Sequence[Story], statuses: Mapping[StoryId, Status]
    ) -> tuple[ScheduleDecision, tuple[StoryId, ...]]:
        """Decide what starts now; a story for which no machine has room waits, and others go first.

        Also return the stories that come next, once there is a slot for them.
        """
        held = self._held()
        ready: tuple[StoryId, ...] = ()
        while True:
            decision = decide(
                order,
                statuses,
                window=self._context.log.snapshot.window,
                policy=self._policy,
                admitting=self._admitting,
                patient=self._awaiting_answers,
                leaving=[name for name in self._active if statuses[name].final],
                held=held,
                reasons=False,
            )
            ready = ready or (*decision.start, *decision.next)
            starting = [self._backlog.by_id[name] for name in decision.start]
            unplaced = self._carriers.unplaced(starting, ready)
            if not unplaced:
                return decision, tuple(name for name in ready if name not in decision.start)
            held = {**held, **unplaced}

    def _relevant_stories(self) -> Sequence[Story]:
        """Return the stories that the next decision depends on."""
        run = self._context.log.snapshot
        if self._policy is ContinuePolicy.NEVER or run.pauses:
            return self._backlog.order  # any that has failed, or waits for its agent, counts
        active = {*self._active, *self._ahead}
        return self._backlog.relevant.stories(run.stories, active=active, most=run.window + MOST_AHEAD)

    async def _follow_base(self, decision: ScheduleDecision) -> bool:
        """Look once for each story that is about to start where its base is; True if that took time."""
        new = {name for name in decision.start if name not in self._based}
        self._based |= new
        return bool(new) and self._base is not None and await self._base.follow()

    async def _read_again(self, decision: ScheduleDecision) -> bool:
        """Read the files of the stories that are about to start once more; True if that took time."""
        waiting = self._base.waiting if self._base is not None else set()
        return await self._changes.read_again([name for name in decision.start if name not in waiting])

    async def _stop_unstarted(self) -> None:
        """Record the result of stories that the user stopped before they had a slot; no worktree is made."""
        run, control = self._context.log.snapshot, self._context.control
        if not control.asked:
            return
        asked = [
            story.id
            for story in run.stories.values()
            if story.status in {Status.WAITING, Status.QUEUED} and control.level(story.id) > Level.RUN
        ]
        for story_id in asked:
            self._withdraw(story_id)
        if asked:
            stopped = (
                results.stopped(story_id, run.run_id, Switch.USER_ABORT.tripped(control.asked_by(story_id)))
                for story_id in asked
            )
            await self._context.log.record(*stopped)

    async def _queue_and_skip(self, decision: ScheduleDecision, before: Mapping[StoryId, Status]) -> None:
        """Record what has become of stories that waited for others, unless one is no longer as `before`.

        A failure that is being recorded, such as that of their base, must not be followed by a place in the
        queue: such a story would be waited for without end.
        """
        log = self._context.log
        names = (*decision.queue, *(skip.story_id for skip in decision.skip))

        def changed() -> KillSwitch | None:
            now = log.snapshot.stories
            return _CHANGED if any(now[name].status is not before[name] for name in names) else None

        for skip in decision.skip:
            self._withdraw(skip.story_id)
        queued = (ev.StoryQueued(story_id=story_id) for story_id in decision.queue)
        skipped = (results.skipped(each.story_id, each.reason, each.blocked_by) for each in decision.skip)
        await log.record_unless(changed, *queued, *skipped)

    async def _start(self, nursery: trio.Nursery, decision: ScheduleDecision) -> bool:
        """Start what may start and prepare what comes next; return whether there was any."""
        log, bodies = self._context.log, list[ev.Body]()
        waiting = self._base.waiting if self._base is not None else set()
        ready = [story_id for story_id in decision.start if story_id in self._ahead.keys() - waiting]
        starting = [story_id for story_id in decision.start if story_id not in self._ahead.keys() | waiting]
        preparing = self._to_prepare(decision, waiting)
        new = [self._backlog.by_id[story_id] for story_id in (*starting, *preparing)]
        interrupted = {story.id: log.snapshot.stories[story.id].workspace.opening for story in new}
        bodies += [ev.StoryStarted(story_id=story_id) for story_id in starting]
        bodies += [body for story in new for body in self._carriers.intent(story)]
        self._active.update(story.id for story in new)
        for story_id in ready:
            log.defer(ev.StoryStarted(story_id=story_id))  # what it does first was durably intended
            self._ahead.pop(story_id).grant(self._backlog.by_id[story_id])
        if bodies:
            await log.record(*bodies)
        for story in new:
            slot = Slot(left=self._leaving, story=story)
            if story.id in preparing:
                self._ahead[story.id] = slot
            else:
                slot.grant(story)
            here = self._context.at(story.repo)
            context = story_context(story, self._backlog.workers[story.id], here)
            carry = self._carriers.carry(context, slot, interrupted=interrupted[story.id])
            nursery.start_soon(carry, name=story.id)
        return bool(bodies)

    def _to_prepare(self, decision: ScheduleDecision, waiting: Collection[StoryId]) -> tuple[StoryId, ...]:
        """Choose whose worktree to make while others work, so that no story waits for it in its slot.

        Stories that run have theirs first, and the disk must have ample room. Those that wait for the base
        are only prepared until it has answered.
        """
        run = self._context.log.snapshot
        if self._context.settings.base_follow or not self._carriers.prepares_ahead:
            return ()  # the base is known when a story starts
        held = [name for name in decision.start if name in waiting and name not in self._ahead]
        if held and not self._context.shared_tree:
            return tuple(name for name in held if not run.stories[name].sessions)
        room = min(MOST_AHEAD, run.window) - len(self._ahead)
        working = (run.stories[name] for name in self._active)
        opening = any(story.status is Status.RUNNING and story.workspace.opening for story in working)
        if self._context.shared_tree or decision.start or opening or not self._disk_is_ample:
            return ()
        fresh = [name for name in decision.next if name not in self._ahead and not run.stories[name].sessions]
        return tuple(fresh[: max(0, room)])

    @property
    def _disk_is_ample(self) -> bool:
        return has_ample_disk(self._context.latest.sample, self._context.settings.tiers)

    def _withdraw(self, story_id: StoryId) -> None:
        slot = self._ahead.pop(story_id, None)
        if slot is not None:
            slot.scope.cancel()

    async def _watch_departures(self) -> None:
        """Release what a story held once its pipeline has ended."""
        async for story_id in self._left:
            self._ahead.pop(story_id, None)
            self._active[story_id] -= 1
            self._active += Counter()  # without those that have none left
            self._changes.departed()
            # The answer may have come while the pipeline was ending.
            if not _paused(self._context.log.snapshot.stories[story_id].decision):
                await self._requeue_answered(story_id)
            self._wake()

    def _held(self) -> dict[StoryId, str]:
        """Return the stories that must not start now, each with the reason: a pause, an agent's limit."""
        log = self._context.log
        if log.snapshot.paused:
            return dict.fromkeys(self._backlog.by_id, PAUSED)
        pauses = log.snapshot.pauses
        if not pauses:
            return {}
        now, stories = log.now(), log.snapshot.stories
        names = {
            story_id: self._awaited(workers, stories[story_id], pauses)
            for story_id, workers in self._backlog.workers.items()
        }
        return {
            story_id: f"waits for {name}, which is at its limit until {clock(pauses[name])}"
            for story_id, name in names.items()
            if remaining(pauses.get(name, 0.0), now)
        }

    def _awaited(self, workers: Workers, story: StorySnapshot, pauses: Mapping[str, float]) -> str:
        """Return the agent that a story waits for: of several, the one that is free first."""
        current = workers.at(story.progress.attempt, story.handed_to).agent.name
        if self._context.settings.on_limit != NEXT:
            return current
        names = [worker.agent.name for worker in workers.order]
        until = {name: max(pauses.get(name, 0.0), story.away.get(name, 0.0)) for name in (current, *names)}
        now = self._context.log.now()
        return soonest(names, current, {name: remaining(time, now) for name, time in until.items()})

    @property
    def _admitting(self) -> bool:
        run_level = self._context.control.run_level
        return run_level is Level.RUN and self._context.log.snapshot.kill_switch is None

    def _settled(self) -> bool:
        """Return whether nothing more will start."""
        if not self._admitting:
            return True
        if self._awaiting_answers or self._changes.busy:
            return False
        stories = self._context.log.snapshot.stories.values()
        return not self._active.total() and all(story.status.final for story in stories)

    @property
    def _awaiting_answers(self) -> bool:
        """Whether the user is at the desk and has questions to answer."""
        attended = self._world.attended
        return attended is not None and bool(self._context.log.snapshot.open_decisions) and attended()

    async def answer(self, event: ev.DecisionAnswered) -> None:
        """Record the user's answer; its story continues in this run."""
        run = self._context.log.snapshot
        try:
            checked = answer_event(
                run, event.story_id, event.letter, decision_id=event.decision_id, by=event.by
            )
        except RunnerError as error:
            await self._context.log.record(ev.Noted(message=f"an answer came too late: {error.message}"))
            return
        await self._context.log.record(checked)
        await self._requeue_answered(event.story_id)

    async def _requeue_answered(self, story_id: StoryId) -> None:
        """Requeue a parked story once its question is answered and its pipeline has ended."""
        story = self._context.log.snapshot.stories[story_id]
        answered = story.decision is not None and bool(story.decision.letter)
        if story.status is Status.PARKED and answered and not self._active[story_id] and self._admitting:
            await self._context.log.record(ev.StoryRequeued(story_id=story_id))

    def reconsider(self) -> None:
        """Decide again what may start, since something outside has changed."""
        self._wake()

    async def _close_admission(self) -> None:
        """Record of every story that never started that it was stopped, and by what."""
        snapshot = self._context.log.snapshot
        left = [story for story in snapshot.stories.values() if not story.status.final]
        if not left:
            return
        ended_by = snapshot.kill_switch or Switch.USER_ABORT.tripped(self._context.control.run_asked_by)
        if ended_by.name == Switch.SPIRAL:
            ended_by = Switch.COHORT.tripped(f"ended with its cohort: {ended_by.detail}")
        await self._context.log.record(
            *(results.stopped(story.id, snapshot.run_id, ended_by) for story in left)
        )

    async def _end_admission(self, switch: Switch, detail: str) -> None:
        if self._context.log.snapshot.kill_switch is None:
            found = switch.tripped(detail)
            await self._context.log.record(
                ev.AdmissionEnded(name=found.name, detail=found.detail, hint=found.hint)
            )

    async def _end_with_cohort(self) -> None:
        """End admission if as many sessions as the run tolerates went in circles.

        The last of them ends it itself, unless it ended in the same moment as another, or on another machine,
        and so did not know that it was the last.
        """
        spirals = self._context.log.snapshot.cohort_spirals
        if spirals >= self._context.settings.spiral_limit:
            await self._end_admission(Switch.SPIRAL, f"{spirals} sessions went in circles")

    async def _watch_stops(self) -> None:
        await self._context.control.wait_for_run(Level.FINISH)
        await self._end_admission(Switch.USER_ABORT, self._context.control.run_asked_by)

    async def _watch_pauses(self) -> None:
        """Decide again what may start when an agent's pause is over."""
        while True:
            held = bool(self._held())
            await trio.sleep(PAUSE_SECONDS)
            if held and not self._held():
                self._wake()

    async def _watch_deadline(self) -> None:
        await trio.sleep_until(self._context.deadline)
        await self._end_admission(Switch.MAX_HOURS, f"{self._context.settings.max_hours:g} h have passed")

    async def _watch_silence(self) -> None:
        """End the run when no story has shown a sign of life for too long."""
        limit = self._context.settings.inactivity_timeout
        while True:
            if (self._awaiting_answers and not self._active.total()) or self._held():
                self._context.log.touch()  # waiting for the user or for a service is not silence
            quiet_until = self._context.log.last_activity + limit
            if trio.current_time() < quiet_until:
                await trio.sleep_until(quiet_until)
                continue
            detail = f"nothing happened for {limit:g} s"
            await self._end_admission(Switch.INACTIVITY, detail)
            self._context.control.raise_run(Level.STOP, detail)
            return

    def _notice(self, event: ev.Event, _run: RunSnapshot) -> None:
        """Decide again what may start, after the events that can change the answer."""
        if isinstance(event.body, ev.StoryRequeued):
            self._backlog.relevant.start_over()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _paused(decision: Decision | None) -> bool:
    """Whether the user has decided to pause: the story then waits for a resume, not for an answer."""
    if decision is None or not decision.letter:
        return False
    return bool(decision.question.get("pauses") == decision.letter)

"""The composition root: lease, journal, keeper, orchestrator and view, put together in order.

One run, whether it begins or goes on, passes through `coordinate`. Whatever ends it, the lease is
given back, the processes are gone, and the records say what happened.
"""

import gc
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from isolation.errors import KeeperError
from isolation.files import lease
from isolation.frozen import frozen
from isolation.git.repository import Repository, offload
from isolation.keeper.client import open_keeper, wait_for_old_keepers
from isolation.paths import journal_path, keepers_lock_path, run_dir
from runner.agents.catalogue import PROGRAMS, choose
from runner.agents.protocol import Agent
from runner.core.events import events as ev
from runner.core.events.fold import exit_code, fold
from runner.core.events.story_json import from_json
from runner.core.model import ResourceSample, RunId, RunSnapshot, Status, Story, StoryId, Tier
from runner.core.schedule.tiers import evaluate
from runner.core.settings import Settings
from runner.machine.probe import Probe
from runner.plan.agent_conflicts import crowding, frictions
from runner.plan.guard import Guarding, guarding_of
from runner.plan.plan import Plan, root_of
from runner.plan.settings.json_form import from_json as settings_from_json
from runner.plan.settings.json_form import redactor_for
from runner.plan.shared_tree import enforcement_of, sharing, warning_of
from runner.records.at_end import books_kept, write_records
from runner.records.crash_log import write_crash_log
from runner.records.event_log import EventLog
from runner.records.history import past_of
from runner.records.journal import Journal, Request
from runner.run.cleanup import sweep, tidy
from runner.run.first_events import beginning
from runner.run.orchestrator import AnswerRequest, Orchestrator, StopRequest, World
from runner.run.side_tasks import Desk, Port, aggregating, attended_by, heralding
from runner.run.signals import EndedBy, ctrl_c, listening
from runner.story.context.budget import Purse
from runner.story.context.context import Tools
from runner.story.context.error_groups import unwrapped
from runner.story.context.memory import Meter, largest_peak
from runner.story.context.stop import StopControl
from runner.story.other_sessions import visible

OLD_KEEPERS_SECONDS = 15.0
SWITCH_SECONDS = 0.0005
SECONDS_AN_HOUR = 3600
NO_IDENTITY = (
    "git knows no identity here, so checkpoints are committed under the name autopilot-multi; "
    "`git config user.name` and `user.email` set yours"
)


Sampler = Callable[[Path], ResourceSample]


class View(Protocol):
    """What a person sees while a run goes on."""

    def seen(self, event: ev.Event, run: RunSnapshot) -> None:
        """Take note of one event; must not block."""

    def say(self, line: str) -> None:
        """Tell a person one thing now."""

    async def refresh(self, hint: Callable[[], str]) -> None:
        """Keep what is shown current until cancelled; `hint` says what Ctrl-C would do now."""

    def pause(self) -> None:
        """Keep still while a question is asked."""

    def go_on(self) -> None:
        """Show the run again."""


@frozen
class Ended:
    """How a run came out: its last snapshot and the program's exit code.

    `events` are those of a run that left none in the journal.
    """

    run: RunSnapshot
    exit_code: int
    went_on: bool = True
    events: tuple[ev.Event, ...] = ()


def new_run_id() -> RunId:
    """Make an id that sorts by time and never repeats."""
    return RunId(time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{secrets.token_hex(4)}")


async def start_run(
    plan: Plan,
    view: View,
    *,
    sample: Sampler | None = None,
    desk: Desk | None = None,
    quiet: bool = False,
) -> Ended:
    """Carry out a plan from its beginning; `sample` looks at the machine around a path."""
    run_id, settings = new_run_id(), plan.settings
    sample = sample or Probe(PROGRAMS)
    seen = await offload(sample, plan.worktree_root)
    tier = evaluate(seen, settings.tiers).tier
    repository, root = plan.repository, plan.worktree_root
    first = beginning(plan, tier, await offload(enforcement_of, repository, settings, root, plan.stories))
    notes = tuple(ev.Noted(message=note) for note in plan.notes)
    async with _coordination(plan.repository, run_id) as journal:
        blank = RunSnapshot(run_id=run_id, started_at=time.time())
        return await _coordinate(
            repository=plan.repository,
            journal=journal,
            snapshot=blank,
            first=(*first, *notes),
            crew=_Crew(
                settings=settings, order=plan.stories, agents=plan.agents, retry_failed=plan.retry_failed
            ),
            view=view,
            sample=_first(seen, sample),
            desk=desk,
            quiet=quiet,
        )


def _first(seen: ResourceSample, sample: Sampler) -> Sampler:
    """Give what was seen just now before anything is looked at again."""
    left = [seen]
    return lambda where: left.pop() if left else sample(where)


def nothing_to_do(plan: Plan) -> Ended:
    """Tell of a backlog that earlier runs have finished; leaves no trace."""
    run_id, at = new_run_id(), time.time()
    first = beginning(plan, Tier.UNKNOWN, Guarding().enforcement)
    events = [ev.Event(run_id=run_id, at=at, body=body) for body in first]
    code = exit_code(fold(run_id, events))
    events.append(ev.Event(run_id=run_id, at=at, body=ev.RunEnded(exit_code=code)))
    run = fold(run_id, events)
    return Ended(run=run, exit_code=code, went_on=False, events=tuple(events))


async def resume_run(
    repository: Repository,
    run_id: RunId,
    view: View,
    *,
    retry_failed: bool,
    desk: Desk | None = None,
    quiet: bool = False,
) -> Ended:
    """Go on with a run where it stands: what is finished stays finished."""
    async with _coordination(repository, run_id) as journal:
        events = await offload(journal.events, run_id)
        snapshot = fold(run_id, events)
        started = next(event.body for event in events if isinstance(event.body, ev.RunStarted))
        order = tuple(from_json(entry) for entry in started.stories)
        settings = settings_from_json(snapshot.options, top=repository.top)
        requeued = _requeued(snapshot, retry_failed=retry_failed)
        asks = desk is not None and bool(snapshot.open_decisions)
        if not requeued and snapshot.ended and not asks:
            # It may have been killed between its last event and its records.
            await offload(write_records, snapshot, repository)
            return Ended(run=snapshot, exit_code=exit_code(snapshot), went_on=False)
        agents = {story.id: choose(story, settings) for story in order}
        return await _coordinate(
            repository=repository,
            journal=journal,
            snapshot=snapshot,
            first=(ev.RunResumed(requeued=requeued),),
            crew=_Crew(settings=settings, order=order, agents=agents, retry_failed=retry_failed),
            view=view,
            sample=Probe(PROGRAMS),
            desk=desk,
            quiet=quiet,
        )


@frozen
class _Crew:
    """Who does what under which settings."""

    settings: Settings
    order: Sequence[Story]
    agents: Mapping[StoryId, Agent]
    retry_failed: bool = False

    @property
    def litter(self) -> tuple[str, ...]:
        """What these agents leave about, as patterns for git to ignore."""
        return tuple(sorted({each for agent in self.agents.values() for each in agent.traits.litter}))


@asynccontextmanager
async def _coordination(repository: Repository, run_id: RunId) -> AsyncIterator[Journal]:
    """Hold the repository for one run, with the processes of any killed run gone."""
    common = repository.common_dir
    held = await offload(lease.acquire, common, run_id)
    try:
        with trio.move_on_after(OLD_KEEPERS_SECONDS) as patience:
            await wait_for_old_keepers(keepers_lock_path(common))
        if patience.cancelled_caught:
            raise KeeperError(
                f"processes of a killed run are still alive after {OLD_KEEPERS_SECONDS:g} s",
                hint="`autopilot-multi doctor` names them; end them, then run again.",
            )
        journal = await offload(Journal.open, journal_path(common))
        try:
            journal.notes = (*held.notes, *journal.notes)
            with unwrapped():
                yield journal
        finally:
            journal.close()
    finally:
        held.release()


async def _coordinate(
    *,
    repository: Repository,
    journal: Journal,
    snapshot: RunSnapshot,
    first: Sequence[ev.Body],
    crew: _Crew,
    view: View,
    sample: Sampler,
    desk: Desk | None = None,
    quiet: bool = False,
) -> Ended:
    """Run the orchestrator beside the view and the signals, then close the books."""
    _tune()
    recorder = EventLog(store=journal, snapshot=snapshot, redactor=redactor_for(crew.settings, os.environ))
    recorder.subscribe(view.seen)
    root = root_of(repository, crew.settings)
    control, ended_by = StopControl(), EndedBy()
    async with (
        listening(control, ended_by, view.say),
        # It comes up while the books are opened.
        open_keeper(alive_lock=keepers_lock_path(repository.common_dir)) as keeper,
    ):
        await offload(_exclude, repository, crew)
        guarding = await offload(guarding_of, repository.paths, crew.settings, root)
        notes = await offload(_notes, journal, repository, crew)
        await recorder.record(*first, *notes)
        async with (
            books_kept(recorder, repository),
            _refreshing(view, partial(ctrl_c, control)),
            sharing(repository, snapshot.run_id, crew.order, crew.settings, root, litter=crew.litter) as tree,
        ):
            tools = Tools(
                repository=repository,
                keeper=keeper,
                meter=Meter(largest=largest_peak(snapshot)),
                recorder=recorder,
                control=control,
                settings=crew.settings,
                worktree_root=root,
                guarding=guarding,
                populate=trio.CapacityLimiter(os.cpu_count() or 1),
                deadline=trio.current_time() + crew.settings.max_hours * SECONDS_AN_HOUR,
                purse=Purse(crew.settings, lambda: recorder.snapshot),
                retry_failed=crew.retry_failed,
                past=await offload(past_of, journal, crew.order),
                sharing=tree,
            )
            await tidy(tools, view.say)
            world = _world(tools, journal, sample, attended=partial(_attended, desk, recorder))
            orchestrator = Orchestrator(order=crew.order, agents=crew.agents, tools=tools, world=world)
            port = Port(recorder=recorder, orchestrator=orchestrator, screen=view)
            await _orchestrate(orchestrator, tools, port, desk, quiet=quiet)
    code = ended_by.code if ended_by.code is not None else exit_code(recorder.snapshot)
    async with books_kept(recorder, repository):
        await recorder.record(ev.RunEnded(exit_code=code))
    await offload(write_records, recorder.snapshot, repository)
    await sweep(root, view.say)
    return Ended(run=recorder.snapshot, exit_code=code)


async def _orchestrate(
    orchestrator: Orchestrator, tools: Tools, port: Port, desk: Desk | None, *, quiet: bool
) -> None:
    """Let the orchestrator work, seen by others and heard by whoever is here."""
    async with visible(tools), aggregating(tools), heralding(tools, quiet=quiet), attended_by(desk, port):
        await tools.keeper.ready()
        await orchestrator.orchestrate()


def _tune() -> None:
    """Fit the interpreter to a long run: what was loaded for it is no garbage, and no thread works for long.

    Threads wait for git and the disk; one that comes back should not have to wait for another's turn.
    """
    gc.freeze()
    gc.enable()
    sys.setswitchinterval(SWITCH_SECONDS)


def _exclude(repository: Repository, crew: _Crew) -> None:
    """Have git ignore what is nobody's work: our own files, and what agents leave about."""
    for pattern in ("/.orchestrator/", *crew.litter):
        repository.exclude(pattern)


def _attended(desk: Desk | None, recorder: EventLog) -> bool:
    return desk is not None and desk.waits(recorder.snapshot)


def _notes(journal: Journal, repository: Repository, crew: _Crew) -> tuple[ev.Noted, ...]:
    """Say what of the surroundings a person should know."""
    identity = "" if repository.has_identity else NO_IDENTITY
    root = root_of(repository, crew.settings)
    warning = warning_of(repository, crew.settings, root)
    rubs = frictions(crew.agents.values(), repository, crew.settings, root)
    rubs += crowding(crew.order, crew.agents, crew.settings)
    told = (*journal.notes, identity, warning, *(friction.line for friction in rubs))
    return tuple(ev.Noted(message=note) for note in told if note)


@asynccontextmanager
async def _refreshing(view: View, hint: Callable[[], str]) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(view.refresh, hint)
        yield
        nursery.cancel_scope.cancel()


def _world(tools: Tools, journal: Journal, sample: Sampler, attended: Callable[[], bool]) -> World:
    run_id = tools.recorder.snapshot.run_id

    def requests(last: int) -> list[StopRequest | AnswerRequest]:
        found = (_request(request) for request in journal.requests_after(run_id, last))
        return [request for request in found if request is not None]

    crashes = run_dir(tools.repository.common_dir, run_id)

    def write_crash(error: BaseException) -> Path:
        return write_crash_log(error, crashes)

    look = partial(sample, tools.worktree_root)
    return World(sample=look, requests=requests, write_crash=write_crash, attended=attended)


def _request(request: Request) -> StopRequest | AnswerRequest | None:
    """Read what another terminal asks; what a newer version may ask is left alone."""
    if request.kind == "stop":
        return StopRequest(id=request.id, story_id=request.story_id, now=bool(request.data.get("now")))
    if request.kind == "answer" and request.story_id is not None:
        answered = ev.DecisionAnswered(
            story_id=request.story_id,
            decision_id=str(request.data.get("decision", "")),
            letter=str(request.data.get("letter", "")),
            by="person",
        )
        return AnswerRequest(id=request.id, event=answered)
    return None


def _requeued(snapshot: RunSnapshot, *, retry_failed: bool) -> tuple[StoryId, ...]:
    """Name the stories that go on: all without a final verdict, and failed ones on demand.

    A story whose question nobody has answered stays parked: it would only ask again.
    """
    again = {Status.RUNNING, Status.STOPPED, Status.PARKED, Status.SKIPPED}
    if retry_failed:
        again.add(Status.FAILED)
    waiting = {story.id for story in snapshot.open_decisions}
    unfinished = [
        story for story in snapshot.stories.values() if story.status in again and story.id not in waiting
    ]
    if all(story.status is Status.SKIPPED for story in unfinished) and snapshot.ended:
        # Nothing that they wait for goes on, so they would only be skipped again.
        return ()
    return tuple(story.id for story in unfinished)

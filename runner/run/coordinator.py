"""The composition root of a run, started or resumed: acquire, build, run, close.

- Acquire: the lease, the end of a killed run's processes, the journal.
- Build: what the run needs, as values (`setup.py`).
- Run: the orchestrator beside the view, the dialog and the signals.
- Close: the last event, the records, the cleanup (`closing.py`).

Whatever ends a run, its processes are gone before the lease is released, and the records say what happened.
"""

import gc
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import trio
from msgspec import Struct
from trio import to_thread

from isolation.decoding import from_values
from isolation.git.repository import Repository
from isolation.keeper.client import Keeper, open_keeper
from isolation.kernel.processors import threads_on_one
from isolation.model import IsolationMode
from isolation.paths import keepers_lock_path, worktree_path
from isolation.worktree.fresh import start_over
from runner.agents.catalog import PROGRAMS, workers_of
from runner.core.events import events as ev
from runner.core.events.drafts import ReviewTaken
from runner.core.events.fold import apply, exit_code, fold
from runner.core.events.run_stories import stories_of
from runner.core.limits.budget import OtherJobs
from runner.core.model import RunId, RunSnapshot, Status, Story, StoryId
from runner.core.progress.repositories import HOME
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.tiers import evaluate
from runner.core.settings import Settings
from runner.core.text.names import branch_of
from runner.core.trust import is_imported
from runner.machine.probe import Probe
from runner.plan.guard import FULL
from runner.plan.plan import Plan
from runner.plan.repositories.site import Site, worktree_root_of
from runner.plan.settings.json_form import from_json as settings_from_json
from runner.plan.settings.json_form import redactor_for
from runner.plan.shared_tree import (
    EnforcementPlan,
    enforcement_again,
    open_shared_tree,
    require_enforcement,
)
from runner.plan.trust.imported import known_stories, with_local_commands
from runner.records.event_log import EventLog
from runner.records.history import Past, left_open, overtaken, past_of, without_overtaken
from runner.records.journal import Journal
from runner.records.telemetry import records_checkout, write_run
from runner.run.base_check import BaseChecks
from runner.run.carry.carriers import Carriers, OpenCarriers
from runner.run.cleanup import tidy
from runner.run.closing import check_branches, close_run, records_on_error
from runner.run.control.changes import require_reviewable, retried
from runner.run.control.requests import Retry
from runner.run.first_events import IS_JOB, OTHER_JOBS, as_recorded, beginning, planned_retries
from runner.run.forecast.live import forecasting
from runner.run.interaction import Dialog, Interaction, LiveRun, Ring, View, no_bell
from runner.run.notices.notifier import notifying
from runner.run.orchestrator import Orchestrator, World
from runner.run.result.ended import Ended, new_run_id
from runner.run.setup import (
    DOUBTED,
    Assignment,
    Sampler,
    exclude_byproducts,
    make_context,
    make_world,
    opening_notes,
)
from runner.run.several.acquisition import acquired
from runner.run.several.places import guards_of, others_of, parts_of, recorded_run
from runner.run.side_tasks import aggregating, drafting, freeing, pooling, refreshing, start_export
from runner.run.signals import EndedBy, ctrl_c, listening
from runner.story.context.context import RunContext
from runner.story.context.stop import StopControl
from runner.story.other_sessions import visible
from runner.story.session.environment import seal_git_commands

SWITCH_SECONDS = 0.0005


_OPEN = frozenset({Status.RUNNING, Status.STOPPED, Status.PARKED, Status.SKIPPED})

Again: TypeAlias = Retry | tuple[ReviewTaken, ...]
"""What is tried again: one story by the user's word, or those whose drafts were reviewed."""


class _Beginning(Struct, frozen=True, kw_only=True):
    """Where a run begins in its journal: its snapshot so far, and the events to record first."""

    journal: Journal
    snapshot: RunSnapshot
    first: Sequence[ev.Body]


def run_plan(
    plan: Plan, view: View, *, dialog: Dialog | None, ring: Ring, elsewhere: OpenCarriers | None = None
) -> Ended:
    """Carry out a plan, here or with what `elsewhere` opens; returns when the run has ended."""
    with threads_on_one():
        return trio.run(partial(start_run, plan, view, dialog=dialog, ring=ring, elsewhere=elsewhere))


async def start_run(
    plan: Plan,
    view: View,
    *,
    sample: Sampler | None = None,
    dialog: Dialog | None = None,
    ring: Ring = no_bell,
    elsewhere: OpenCarriers | None = None,
) -> Ended:
    """Carry out a plan from its beginning; `sample` measures the machine around a path."""
    run_id, settings, repository, root = new_run_id(), plan.settings, plan.repository, plan.worktree_root
    sample = sample or Probe(PROGRAMS)
    sampled = await to_thread.run_sync(sample, root)
    sites = {name: site for name, site in plan.sites.items() if not site.is_home}
    enforcements = await to_thread.run_sync(_enforcements, plan.sites, plan.stories, require_enforcement)
    enforcement = enforcements.pop(HOME)
    first = beginning(plan, evaluate(sampled, settings.tiers).tier, enforcement.name)
    notes = (ev.Noted(message=note) for note in plan.notes)
    assignment = Assignment(
        repository=repository,
        settings=settings,
        worktree_root=root,
        stories=plan.stories,
        workers=plan.workers,
        enforcement=enforcement,
        retry_failed=plan.retry_failed,
        failed={} if plan.retry_failed else plan.failed_quick,
        others=plan.others,
        elsewhere=elsewhere,
        sites=sites,
        enforcements=enforcements,
    )
    async with acquired(repository, run_id, others=[site.repository for site in sites.values()]) as journal:
        blank = RunSnapshot(run_id=run_id, started_at=time.time())
        fresh = await to_thread.run_sync(_start_over, plan)
        return await _coordinate(
            assignment,
            _Beginning(journal=journal, snapshot=blank, first=(*first, *notes, *fresh)),
            Interaction(view=view, dialog=dialog, ring=ring),
            _starting_with(sampled, sample),
        )


def _enforcements(
    sites: Mapping[str, Site],
    stories: Sequence[Story],
    find: Callable[[Repository, Settings, Path, Sequence[Story]], EnforcementPlan],
) -> dict[str, EnforcementPlan]:
    """Find out in each repository how its stories are kept within their paths. Blocking."""
    plans = {
        name: find(
            site.repository,
            site.settings,
            site.worktree_root,
            [story for story in stories if story.repo == name],
        )
        for name, site in sites.items()
    }
    return guards_of(sites, plans)


def _start_over(plan: Plan) -> tuple[ev.Noted, ...]:
    """Free the branches of the stories that start over, and say where their old tips are. Blocking."""
    kept: dict[StoryId, str] = {}
    for site in plan.sites.values():
        own = {story.id for story in plan.stories_in(site)}
        places = {
            story_id: (branch_of(story_id), worktree_path(site.worktree_root, story_id))
            for story_id in plan.fresh
            if story_id in own
        }
        kept |= start_over(site.repository, places)
    return tuple(
        ev.Noted(story_id=story_id, message=f"starts over; its old tip is {kept[story_id]}")
        for story_id in plan.fresh
        if story_id in kept
    )


def _starting_with(sampled: ResourceSample, sample: Sampler) -> Sampler:
    """Return a sampler whose first sample is the one just taken."""
    left = [sampled]
    return lambda where: left.pop() if left else sample(where)


def run_rest(
    repository: Repository,
    run_id: RunId,
    view: View,
    *,
    retry_failed: bool,
    dialog: Dialog | None,
    ring: Ring,
    again: Again | None = None,
    elsewhere: OpenCarriers | None = None,
) -> Ended:
    """Continue a run that was interrupted; returns when it has ended."""
    interaction = Interaction(view=view, dialog=dialog, ring=ring)
    rest = partial(resume_run, repository, run_id, interaction, retry_failed=retry_failed)
    with threads_on_one():
        return trio.run(partial(rest, again=again, elsewhere=elsewhere))


async def resume_run(
    repository: Repository,
    run_id: RunId,
    interaction: Interaction,
    *,
    retry_failed: bool,
    again: Again | None = None,
    elsewhere: OpenCarriers | None = None,
) -> Ended:
    """Continue a run where it was interrupted: what is finished stays finished.

    With `again`, stories that have ended are tried again, and others stay as they ended.
    """
    known = await to_thread.run_sync(recorded_run, repository, run_id)
    sites = await to_thread.run_sync(others_of, known)
    repositories = {name: site.repository for name, site in sites.items()} | {HOME: repository}
    async with acquired(repository, run_id, others=tuple(repositories.values())) as journal:
        events = await to_thread.run_sync(journal.events, run_id)
        continued = await to_thread.run_sync(overtaken, journal, run_id)
        snapshot = without_overtaken(fold(run_id, events), continued)
        stories = stories_of(events)
        settings = settings_from_json(snapshot.options, top=repository.top)
        root = worktree_root_of(repository, settings)
        if again is None:
            find = partial(planned_retries, repositories, snapshot, stories, without=continued)
            retries: tuple[ev.Body, ...] = await to_thread.run_sync(find)
        else:
            roots = {name: site.worktree_root for name, site in sites.items()} | {HOME: root}
            retries = await to_thread.run_sync(_tried_again, repositories, snapshot, again, roots)
        requeued = _continuing(snapshot, retries, again, continued, retry_failed=retry_failed)
        _say_overtaken(interaction.view, snapshot, continued)
        if not requeued and not retries and snapshot.ended and not interaction.asks(snapshot):
            # It may have been killed between its last event and its records.
            await to_thread.run_sync(write_run, snapshot, records_checkout(repository.paths))
            return Ended(run=snapshot, exit_code=exit_code(snapshot), idle=True)
        if is_imported(snapshot.options):
            here = await to_thread.run_sync(known_stories, repository, settings)
            stories = with_local_commands(stories, here, run_id)
        stories = as_recorded(stories, _with(snapshot, retries))
        home = Site(name=HOME, label="", repository=repository, settings=settings, base=snapshot.base)
        every = {HOME: home, **sites}
        enforcements = await to_thread.run_sync(_enforcements, every, stories, enforcement_again)
        assignment = Assignment(
            repository=repository,
            settings=settings,
            worktree_root=root,
            stories=stories,
            workers={story.id: workers_of(story, settings) for story in stories},
            enforcement=enforcements.pop(HOME),
            retry_failed=retry_failed,
            others=from_values(snapshot.options.get(OTHER_JOBS, {}), OtherJobs),
            elsewhere=elsewhere,
            sites=sites,
            enforcements=enforcements,
        )
        first = (*retries, ev.RunResumed(requeued=requeued))
        resumed = _Beginning(journal=journal, snapshot=snapshot, first=first)
        return await _coordinate(assignment, resumed, interaction, Probe(PROGRAMS))


def _say_overtaken(view: View, run: RunSnapshot, continued: Mapping[StoryId, RunId]) -> None:
    """Say which open stories a newer run has continued."""
    for story_id, newer in continued.items():
        if story_id in run.stories and run.stories[story_id].status in _OPEN:
            view.say(f"story {story_id} was continued by run {newer}, so this run leaves it alone")


def _tried_again(
    repositories: Mapping[str, Repository], snapshot: RunSnapshot, again: Again, roots: Mapping[str, Path]
) -> tuple[ev.Body, ...]:
    """Return the events by which stories that have ended are tried again. Blocking."""
    if isinstance(again, Retry):
        story = snapshot.stories.get(again.story_id)
        repo = story.repo if story is not None else HOME
        return (retried(repositories[repo], snapshot, again, roots[repo]),)
    return tuple(require_reviewable(snapshot, each) for each in again)


def _continuing(
    snapshot: RunSnapshot,
    retries: Sequence[ev.Body],
    again: Again | None,
    continued: Mapping[StoryId, RunId],
    *,
    retry_failed: bool,
) -> tuple[StoryId, ...]:
    """Return the stories that continue; with `again` only those that a killed run had running."""
    if again is not None:
        return tuple(story.id for story in snapshot.stories.values() if story.status is Status.RUNNING)
    names = (*_requeued(snapshot, retry_failed=retry_failed), *filter(None, map(ev.story_of, retries)))
    return tuple(name for name in names if name not in continued)


def _with(snapshot: RunSnapshot, bodies: Sequence[ev.Body]) -> RunSnapshot:
    """Return the run as it will be after these events."""
    for body in bodies:
        snapshot = apply(snapshot, ev.Event(run_id=snapshot.run_id, at=time.time(), body=body))
    return snapshot


def _requeued(snapshot: RunSnapshot, *, retry_failed: bool) -> tuple[StoryId, ...]:
    """Return the stories that continue: all without a final result, and failed ones on demand.

    A story whose question is still open stays parked: it would only ask again. One that was killed between
    its question and its end, or was stopped there, is not parked yet; it continues, to commit what is there
    and to be parked.
    """
    again = _OPEN | ({Status.FAILED} if retry_failed else set())
    waiting = {
        story.id
        for story in snapshot.open_decisions
        if story.status.final and story.status is not Status.STOPPED
    }
    unfinished = [
        story for story in snapshot.stories.values() if story.status in again and story.id not in waiting
    ]
    if all(story.status is Status.SKIPPED for story in unfinished) and snapshot.ended:
        # None of the stories that they depend on continues, so they would only be skipped again.
        return ()
    return tuple(story.id for story in unfinished)


async def _coordinate(
    assignment: Assignment, beginning: _Beginning, interaction: Interaction, sample: Sampler
) -> Ended:
    """Build, run and close one run in a repository that is already acquired."""
    _tune_interpreter()
    repository, settings, view = assignment.repository, assignment.settings, interaction.view
    redactor = redactor_for(settings, os.environ, repository)
    log = EventLog(store=beginning.journal, snapshot=beginning.snapshot, redactor=redactor)
    log.subscribe(view.seen)
    control, ended_by = StopControl(), EndedBy()
    async with (
        listening(control, ended_by, view.say),
        # It starts while the first events are recorded.
        open_keeper(
            alive_lock=keepers_lock_path(repository.common_dir),
            more=[keepers_lock_path(site.repository.common_dir) for site in assignment.sites.values()],
            network=settings.seal == FULL,
        ) as keeper,
    ):
        await to_thread.run_sync(exclude_byproducts, assignment)
        notes = await to_thread.run_sync(opening_notes, beginning.journal, assignment)
        await log.record(*beginning.first, *notes)
        await start_export(log, settings, repository.top)
        async with (
            records_on_error(log, repository),
            refreshing(view, partial(ctrl_c, control)),
            _context(assignment, beginning.journal, log, keeper, control) as context,
        ):
            await to_thread.run_sync(seal_git_commands, context)
            await tidy(context, view.say)
            began = log.now()
            await _orchestrate(assignment, context, beginning.journal, interaction, sample)
            await check_branches(log, context, since=began)
    code = ended_by.code if ended_by.code is not None else exit_code(log.snapshot)
    await close_run(log, assignment.places, view, exit_code=code)
    return Ended(run=log.snapshot, exit_code=code)


def _tune_interpreter() -> None:
    """Fit the interpreter to a long run: what is loaded now is never garbage, and no thread runs for long.

    Threads wait for git and the disk; one that comes back should not have to wait for another's turn.
    """
    gc.freeze()
    gc.enable()
    sys.setswitchinterval(SWITCH_SECONDS)


@asynccontextmanager
async def _context(
    assignment: Assignment, journal: Journal, log: EventLog, keeper: Keeper, control: StopControl
) -> AsyncIterator[RunContext]:
    """Open what the stories share, for as long as the orchestrator works."""
    run = log.snapshot
    # In a clone that CI jobs use again, what happened on another commit says nothing about this one.
    base = run.base if run.options.get(IS_JOB) else ""
    find = partial(past_of, journal, assignment.stories, before=run.run_id, base=base)
    past = await to_thread.run_sync(find)
    past |= {story_id: Past(reason=reason) for story_id, reason in assignment.failed.items()}
    left: set[StoryId] = set()
    if assignment.settings.bg_isolation == IsolationMode.NONE:
        top = assignment.repository.top
        left = await to_thread.run_sync(partial(left_open, journal, assignment.own, top, before=run.run_id))
    async with open_shared_tree(
        assignment.repository,
        log.snapshot.run_id,
        assignment.own,
        assignment.settings,
        assignment.worktree_root,
        level=assignment.enforcement.level,
        byproducts=assignment.byproducts,
        beside=assignment.enforcement.write_guard.beside,
    ) as tree:
        context = make_context(
            assignment, log=log, keeper=keeper, control=control, shared_tree=tree, past=past, left_open=left
        )
        async with parts_of(
            context,
            journal,
            assignment.sites,
            assignment.enforcements,
            assignment.stories,
            byproducts=assignment.byproducts,
            doubted=DOUBTED,
        ) as whole:
            yield whole


async def _orchestrate(
    assignment: Assignment, context: RunContext, journal: Journal, interaction: Interaction, sample: Sampler
) -> None:
    """Let the orchestrator carry the stories, with everything that runs beside it."""
    world = make_world(context, journal, sample, interaction.dialog)
    async with _carriers(assignment, context, journal) as carriers:
        await _orchestrate_with(carriers, assignment, context, interaction, world)


@asynccontextmanager
async def _carriers(
    assignment: Assignment, context: RunContext, journal: Journal
) -> AsyncIterator[Carriers | None]:
    """Open the machines that carry the stories, if this one does not."""
    if assignment.elsewhere is None:
        yield None
        return
    events = await to_thread.run_sync(journal.events, context.log.snapshot.run_id)
    async with assignment.elsewhere(context, events) as carriers:
        yield carriers


async def _orchestrate_with(
    carriers: Carriers | None,
    assignment: Assignment,
    context: RunContext,
    interaction: Interaction,
    world: World,
) -> None:
    orchestrator = Orchestrator(
        order=assignment.stories,
        workers=assignment.workers,
        context=context,
        world=world,
        base=BaseChecks(context, assignment.stories),
        carriers=carriers,
    )
    async with AsyncExitStack() as beside:
        for here in context.everywhere:
            await beside.enter_async_context(visible(here))
        await beside.enter_async_context(aggregating(context))
        for here in context.everywhere:
            own = [story for story in assignment.stories if story.repo == here.repo]
            await beside.enter_async_context(forecasting(here))
            await beside.enter_async_context(drafting(here, own))
        await beside.enter_async_context(notifying(context, interaction.ring))
        for here in context.everywhere:
            await beside.enter_async_context(pooling(here))
            await beside.enter_async_context(freeing(here))
        desk = await beside.enter_async_context(trio.open_nursery())
        if interaction.dialog is not None:
            live = LiveRun(
                context.log,
                answer=orchestrator.answer,
                postponed=orchestrator.reconsider,
                pause=interaction.view.pause,
                resume=interaction.view.resume,
                bell=context.settings.bell,
            )
            desk.start_soon(interaction.dialog.serve, live)
        await context.keeper.ready()
        await orchestrator.orchestrate()
        desk.cancel_scope.cancel()  # what is not answered when the run ends stays open

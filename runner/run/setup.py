"""What a run needs, put together from its plan and its surroundings before the first story starts."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct, field

from isolation.git.repository import Repository
from isolation.keeper.client import Keeper
from isolation.paths import run_dir
from isolation.worktree.pool.pool import Pool
from runner.agents.workers import Workers, agents_of
from runner.core.events import events as ev
from runner.core.limits.budget import OtherJobs
from runner.core.model import RunId, Story, StoryId
from runner.core.progress.repositories import HOME
from runner.core.schedule.resources import ResourceSample
from runner.core.settings import Settings
from runner.machine.registry import Registry
from runner.plan.agent_conflicts import agent_conflicts, sandbox_conflicts
from runner.plan.repositories.site import Site
from runner.plan.shared_tree import EnforcementPlan, OpenSharedTree
from runner.plan.stories.sparse import all_sparse
from runner.records.crash_log import write_crash_log
from runner.records.event_log import EventLog
from runner.records.history import Past
from runner.records.journal import Journal
from runner.records.telemetry import load_spending, records_checkout
from runner.run.carry.carriers import OpenCarriers
from runner.run.interaction import Dialog
from runner.run.orchestrator import World
from runner.run.pool.overlays import bottoms_of
from runner.run.pool.trees import make_pool
from runner.story.context.budget import BudgetLedger
from runner.story.context.context import VERIFIED, RunContext
from runner.story.context.memory import MemoryMeter, largest_peak
from runner.story.context.stop import StopControl

DOUBTED = "verify passed, but not for certain on its own files (see the notes)"
SECONDS_PER_HOUR = 3600
NO_IDENTITY = (
    "git has no identity configured here, so checkpoints are committed under the name autopilot-multi; "
    "`git config user.name` and `user.email` set yours"
)

Sampler = Callable[[Path], ResourceSample]


class Assignment(Struct, frozen=True, kw_only=True):
    """Which agent carries which story, in which order, under which settings, in which repository.

    `worktree_root` is the folder of the story worktrees; `enforcement` is what keeps their sessions within
    their paths. `failed` are stories that failed in the last run, so that the user must agree to another try.
    `others` is what other jobs of the same pipeline have used of the budget and the time. `elsewhere` opens
    the machines that carry the stories; None if this one does. `sites` are the other repositories in which
    stories work, by the name that these have for them, with what keeps their sessions within their paths.
    """

    repository: Repository
    settings: Settings
    worktree_root: Path
    stories: Sequence[Story]
    workers: Mapping[StoryId, Workers]
    enforcement: EnforcementPlan
    retry_failed: bool = False
    failed: Mapping[StoryId, str] = field(default_factory=dict)
    others: OtherJobs = OtherJobs()
    elsewhere: OpenCarriers | None = None
    sites: Mapping[str, Site] = field(default_factory=dict)
    enforcements: Mapping[str, EnforcementPlan] = field(default_factory=dict)

    @property
    def own(self) -> tuple[Story, ...]:
        """The stories that work in the repository of the run."""
        return tuple(story for story in self.stories if story.repo == HOME)

    @property
    def places(self) -> tuple[tuple[Repository, Path], ...]:
        """All repositories, that of the run first, with the folders of their worktrees."""
        others = ((site.repository, site.worktree_root) for site in self.sites.values())
        return (self.repository, self.worktree_root), *others

    @property
    def byproducts(self) -> tuple[str, ...]:
        """What these agents leave in the tree, as patterns for git to ignore."""
        return tuple(sorted({each for agent in agents_of(self.workers) for each in agent.traits.litter}))


def exclude_byproducts(assignment: Assignment) -> None:
    """Have git ignore what is not a story's work: our own files, and what agents leave in the tree."""
    for repository, _ in assignment.places:
        for pattern in ("/.orchestrator/", *assignment.byproducts):
            repository.exclude(pattern)


def opening_notes(journal: Journal, assignment: Assignment) -> tuple[ev.Noted, ...]:
    """Return what the user should know about the surroundings before anything starts."""
    repository, enforcement = assignment.repository, assignment.enforcement
    conflicts = agent_conflicts(agents_of(assignment.workers), repository, enforcement.means)
    conflicts += sandbox_conflicts(assignment.stories, assignment.workers, assignment.settings)
    others = (
        f"{site.label}: {line}"
        for name, site in assignment.sites.items()
        for line in (
            "" if site.repository.has_identity else NO_IDENTITY,
            *assignment.enforcements[name].warnings,
            *(one.line for one in agent_conflicts(agents_of(assignment.workers), site.repository, None)),
        )
        if line and line not in (*enforcement.warnings, NO_IDENTITY)
    )
    lines = (
        *journal.notes,
        "" if repository.has_identity else NO_IDENTITY,
        *enforcement.warnings,
        *(conflict.line for conflict in conflicts),
        *others,
    )
    return tuple(ev.Noted(message=line) for line in lines if line)


def make_context(
    assignment: Assignment,
    *,
    log: EventLog,
    keeper: Keeper,
    control: StopControl,
    shared_tree: OpenSharedTree | None,
    past: Mapping[StoryId, Past],
    left_open: Collection[StoryId] = (),
) -> RunContext:
    """Put together what every story of the run shares; the run's time starts to count."""
    settings, others, run_id = assignment.settings, assignment.others, log.snapshot.run_id
    guard = assignment.enforcement.write_guard
    bottoms = bottoms_of(assignment.repository, settings, assignment.worktree_root, run_id, guard)
    records = records_checkout(assignment.repository.paths)
    return RunContext(
        repository=assignment.repository,
        keeper=keeper,
        meter=MemoryMeter(largest=largest_peak(log.snapshot)),
        log=log,
        control=control,
        settings=settings,
        worktree_root=assignment.worktree_root,
        write_guard=guard,
        populate=trio.CapacityLimiter(os.cpu_count() or 1),
        deadline=trio.current_time() + max(0.0, settings.max_hours * SECONDS_PER_HOUR - others.seconds),
        budget=BudgetLedger(settings, lambda: log.snapshot, partial(load_spending, records), others),
        registry=Registry(assignment.repository.common_dir),
        write_crash=partial(write_crash_log, folder=run_dir(assignment.repository.common_dir, run_id)),
        retry_failed=assignment.retry_failed,
        past=past,
        left_open=left_open,
        shared_tree=shared_tree,
        proof=DOUBTED if any(way.certain for way in assignment.enforcement.ways_out) else VERIFIED,
        pool=None if shared_tree else _pool(assignment, run_id, keeper, wanted=bottoms is None),
        bottoms=bottoms,
    )


def _pool(assignment: Assignment, run_id: RunId, keeper: Keeper, *, wanted: bool) -> Pool:
    settings = assignment.settings
    return make_pool(
        assignment.repository,
        assignment.worktree_root,
        run_id,
        settings,
        guarded=assignment.enforcement.write_guard.means is not None,
        wanted=wanted and not all_sparse(assignment.own, settings),  # spares are full
        keeper=keeper,
    )


def make_world(context: RunContext, journal: Journal, sample: Sampler, dialog: Dialog | None) -> World:
    """Return the orchestrator's access to the machine, to other terminals and to the user."""
    run_id = context.log.snapshot.run_id

    return World(
        sample=partial(sample, context.worktree_root),
        requests=partial(journal.requests_after, run_id),
        attended=None if dialog is None else lambda: dialog.waits(context.log.snapshot),
    )

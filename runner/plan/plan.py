"""From a request to a plan: settings, stories, order, agents and a frozen base. Writes nothing."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field, structs
from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.paths import folds_case, journal_path, worktree_root
from runner.agents.catalogue import PROGRAMS, choose
from runner.agents.protocol import Agent
from runner.core.errors import BacklogError, JournalError, NotFoundError
from runner.core.events.events import StoryFinished
from runner.core.flow import QUICK, Edition
from runner.core.model import Status, Story, StoryId
from runner.core.schedule.exclusivity import classify, runs_alone
from runner.core.schedule.graph import closure, critical_path, expected_durations, ordered, waves
from runner.core.schedule.schedule import decide
from runner.core.schedule.window import at_start
from runner.core.settings import Settings
from runner.core.text.names import branch_of
from runner.machine import probe
from runner.plan.claims import read_ownership, require_specs, settle
from runner.plan.settings.load import Loaded, load_settings
from runner.plan.settings.prompt_template import load_template
from runner.plan.shared_tree import require_shareable
from runner.plan.stories.sources import load_stories
from runner.records.history import Earlier, Finished, earlier, unfinished_of_newest
from runner.records.journal import Journal
from runner.records.shards import Shard, load_shards, results_in, unfinished_in
from runner.report.terminal.plan import PlanRow, PlanView

AUTO = "auto"


class RunRequest(Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    directory: Path
    sources: tuple[str, ...] = ()
    flags: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    retry_failed: bool = False
    again: bool = False
    shard_in: tuple[Path, ...] | None = None


class Backlog(Struct, frozen=True, kw_only=True):
    """The stories of a request, fitted together. `stories` is the start order of what was asked for.

    `whole` is all that was read, before anything was chosen. `told` is what shards of other jobs say of
    stories that are not this job's own; `shards` are those that say so. `durations` are the minutes that each
    story will take, empty where nothing is known of any. `notes` is what a person should hear.
    """

    repository: Repository
    loaded: Loaded
    base: str
    whole: tuple[Story, ...]
    stories: tuple[Story, ...]
    finished: Mapping[StoryId, Finished]
    notes: tuple[str, ...] = ()
    durations: Mapping[StoryId, float] = field(default_factory=dict)
    told: Mapping[StoryId, StoryFinished] = field(default_factory=dict)
    shards: tuple[Shard, ...] = ()
    retry_failed: bool = False
    fence: tuple[str, ...] = ()
    disjoint: bool | None = None

    @property
    def settings(self) -> Settings:
        """The run's settings, from all sources."""
        return self.loaded.settings

    @property
    def own(self) -> tuple[Story, ...]:
        """The stories that are this job's own to carry out or to find done."""
        return tuple(story for story in self.stories if story.id not in self.told)

    @property
    def worktree_root(self) -> Path:
        """Where this run's worktrees stand."""
        return root_of(self.repository, self.settings)


class Plan(Backlog, frozen=True, kw_only=True):
    """All that a run needs, decided before anything starts."""

    agents: Mapping[StoryId, Agent]


def make_plan(request: RunRequest) -> Plan:
    """Read and check everything; the first thing that is wrong is raised."""
    backlog = load_backlog(request)
    agents = {story.id: choose(story, backlog.settings) for story in backlog.own}
    if backlog.settings.prompt_template:
        load_template(backlog.repository.top / backlog.settings.prompt_template)
    parts = structs.asdict(backlog)
    notes = (*backlog.notes, *_found_by_itself(backlog.own, agents, backlog.settings))
    return Plan(**{**parts, "notes": notes}, agents=agents)


def load_backlog(request: RunRequest) -> Backlog:
    """Read the stories and put them in order; asks for no agent."""
    repository = Repository.open(request.directory)
    loaded = load_settings(top=repository.top, flags=request.flags, environ=os.environ)
    require_specs(loaded.settings)
    whole = load_stories(
        request.sources, top=repository.top, default=loaded.settings.stories, cwd=request.directory.resolve()
    )
    ownership = read_ownership(loaded, whole, whole=not request.sources)
    shards = load_shards(request.shard_in or ())
    only = request.only
    if request.retry_failed:
        only = (*only, *(unfinished_in(shards) if shards else _failed_before(repository)))
    chosen = closure(whole, only) if only else whole
    settled = settle(
        ordered(_with_flow(story, repository.top, loaded.settings) for story in chosen),
        ownership,
        isolation=loaded.settings.bg_isolation,
        folding=folds_case(repository.top),
    )
    before = _earlier(repository, settled.stories)
    durations = expected_durations(settled.stories, before.minutes)
    order = ordered(settled.stories, durations)
    base = repository.resolve(loaded.settings.base)
    require_shareable(loaded.settings, repository, base)
    finished = {} if request.again else _still_there(repository, before.finished, base)
    told: dict[StoryId, StoryFinished] = {}
    if request.shard_in is not None:
        others = [story for story in order if story.id not in only and story.id not in finished]
        told = results_in(shards, others, base=base, rerun_unfinished=not only)
    return Backlog(
        repository=repository,
        loaded=loaded,
        base=base,
        whole=whole,
        stories=order,
        finished=finished,
        durations=durations,
        notes=(*loaded.notes, *settled.notes, *_odd_modes(order)),
        told=told,
        shards=shards,
        retry_failed=request.retry_failed,
        fence=ownership.fence,
        disjoint=settled.disjoint,
    )


def _found_by_itself(
    order: Sequence[Story], agents: Mapping[StoryId, Agent], settings: Settings
) -> tuple[str, ...]:
    """Say which agent `auto` has found, where it decides."""
    names = {
        agents[story.id].name
        for story in order
        if story.command is None and (story.agent or settings.agent) == AUTO
    }
    return tuple(f"agent auto: {name}" for name in sorted(names))


def view(plan: Plan, enforcement: str) -> PlanView:
    """Return the plan as people and machines read it; `enforcement` names the level."""
    settings = plan.settings
    allowed = at_start(probe.sample(plan.worktree_root, PROGRAMS), settings)
    levels = {story_id: number for number, wave in enumerate(waves(plan.stories), 1) for story_id in wave}
    reasons = _reasons(plan, allowed.stories)
    left = [story for story in plan.own if story.id not in plan.finished]
    critical = critical_path(left, plan.durations)
    rows = tuple(
        replace(
            _row(plan, story, position=position, wave=levels[story.id], reason=reasons[story.id]),
            critical=story.id in critical,
            expected_minutes=plan.durations.get(story.id),
            minutes_to_the_end=critical.get(story.id) if plan.durations else None,
        )
        for position, story in enumerate(plan.stories, 1)
    )
    return PlanView(
        base=plan.base,
        base_ref=settings.base,
        window=allowed.stories,
        max_stories=settings.max_stories,
        tier=allowed.tier,
        tier_reason=allowed.reason,
        isolation=settings.bg_isolation,
        enforcement=enforcement,
        fence=plan.fence,
        disjoint=plan.disjoint,
        rows=rows,
    )


def root_of(repository: Repository, settings: Settings) -> Path:
    """Give the folder of the story worktrees; a configured one counts from the top of the repository."""
    if not settings.worktree_root:
        return worktree_root(repository.common_dir, None)
    return worktree_root(repository.common_dir, repository.top / Path(settings.worktree_root).expanduser())


def _reasons(plan: Plan, window: int) -> dict[StoryId, str]:
    """Say of each story when it starts, as the scheduler itself decides at the beginning."""
    statuses = {
        story.id: Status.DONE if story.id in plan.finished else Status.WAITING for story in plan.stories
    }
    statuses |= {story_id: Status(told.verdict) for story_id, told in plan.told.items()}
    decision = decide(plan.stories, statuses, window, plan.settings.continue_, admitting=True)
    finished = {
        story_id: f"done in run {done.run_id}; --again runs it once more"
        for story_id, done in plan.finished.items()
    }
    skipped = {skip.story_id: f"is skipped: {skip.reason}" for skip in decision.skip}
    told = {name: f"{verdict.verdict} by its shard: {verdict.reason}" for name, verdict in plan.told.items()}
    modes = {story.id: story.mode for story in plan.stories}
    starting = {story_id: _starts(modes[story_id]) for story_id in decision.start}
    return {**starting, **decision.waiting_for, **skipped, **finished, **told}


def _starts(mode: str) -> str:
    return f"starts at once, alone (mode {mode})" if runs_alone(mode) else "starts at once"


def _row(plan: Plan, story: Story, *, position: int, wave: int, reason: str) -> PlanRow:
    waits_for = tuple(name for name in story.depends_on if name not in plan.finished)
    base = " + ".join(branch_of(name) for name in story.depends_on) or plan.base[:12]
    return PlanRow(
        position=position,
        wave=wave,
        id=story.id,
        title=story.title,
        agent=plan.agents[story.id].name if story.id in plan.agents else "",
        waits_for=waits_for,
        reason=reason,
        branch=branch_of(story.id),
        base=base,
        claim=story.owns,
        verify=story.verify or plan.settings.verify,
    )


def _with_flow(story: Story, top: Path, settings: Settings) -> Story:
    """Settle which flow a story follows, and that there is such a flow."""
    if story.flow == QUICK.name:
        return story
    from runner.flows.catalogue import FlowError, load_flow
    from runner.flows.scan import detect_flow

    edition = Edition(story.dialect or settings.dialect)
    name = detect_flow(top, edition) if story.flow == AUTO else story.flow
    try:
        load_flow(name, edition, top)
    except FlowError as error:
        where = f" ({story.source})" if story.source else ""
        raise BacklogError(f"story {story.id}{where}: {error.message}", hint=error.hint) from error
    return replace(story, flow=name)


def _odd_modes(stories: Sequence[Story]) -> tuple[str, ...]:
    """Warn of every story whose mode nobody knows."""
    warnings = ((story.id, classify(story.mode).warning) for story in stories)
    return tuple(f"story {story_id}: {warning}" for story_id, warning in warnings if warning)


def _failed_before(repository: Repository) -> tuple[StoryId, ...]:
    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        unfinished = unfinished_of_newest(journal)
    if not unfinished:
        raise NotFoundError("no story failed in the newest run", hint="`autopilot-multi status` shows it.")
    return unfinished


def _earlier(repository: Repository, stories: Sequence[Story]) -> Earlier:
    try:
        with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
            return earlier(journal, stories)
    except (JournalError, NotFoundError):
        # There is none yet, or a kill left it before its first word. One that cannot be read is the
        # coordinator's matter: it sets it aside, or refuses.
        return Earlier()


def _still_there(
    repository: Repository, found: Mapping[StoryId, Finished], base: str
) -> dict[StoryId, Finished]:
    """Keep of what earlier runs finished only what is still there: on its branch, or in the base."""
    kept = {}
    for story_id, done in found.items():
        tip = repository.branch_tip(branch_of(story_id))
        places = [place for place in (tip, base) if place is not None]
        if done.commit and any(repository.is_ancestor(done.commit, place) for place in places):
            kept[story_id] = done
    return kept

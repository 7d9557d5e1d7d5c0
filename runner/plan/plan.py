"""From a request to a plan: settings, stories, claims, what is already done, agents. Writes nothing.

`load_backlog` takes these steps in this order; `make_plan` adds the agents. Every problem is raised before
anything starts, and nothing that a run needs is decided later.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field, structs
from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.model import IsolationMode
from runner.agents.catalog import require_clear_models, require_prices, workers_of
from runner.agents.workers import Workers
from runner.core.base.check import Mode
from runner.core.errors import BacklogError, SettingsError, UsageError
from runner.core.events.events import StoryFinished
from runner.core.flow import QUICK, Edition, docs_folder
from runner.core.forecast.clashes import Clash
from runner.core.limits.budget import Amount, OtherJobs, budget_notes
from runner.core.limits.kill_switches import STEP_SESSIONS
from runner.core.model import Story, StoryId
from runner.core.progress.repositories import HOME
from runner.core.schedule.budget_share import Share
from runner.core.schedule.candidates import candidate_notes
from runner.core.schedule.exclusivity import classify
from runner.core.schedule.graph import closure, expected_durations, ordered
from runner.core.settings import Settings
from runner.plan.claims import read_ownership, require_ownership
from runner.plan.earlier_runs import load_earlier, require_failed, still_present
from runner.plan.repositories.claiming import claims_in
from runner.plan.repositories.site import Site, label_of
from runner.plan.repositories.sites import load_sites
from runner.plan.settings.load import Loaded, load_settings
from runner.plan.settings.prompt_template import load_template
from runner.plan.settings.threshold import with_threshold
from runner.plan.shared_tree import require_shareable
from runner.plan.stories.lock_files import shared_file_notes
from runner.plan.stories.sources import load_stories
from runner.plan.stories.sparse import sparse_notes
from runner.plan.unseen import require_seen
from runner.records.history import Finished
from runner.records.shards.results import handed_on, results_in, unfinished_in, used_in
from runner.records.shards.shard import Shard, load_shards

AUTO = "auto"
T = TypeVar("T")


class RunRequest(Struct, frozen=True, kw_only=True):
    """What the command line asks for.

    `is_job`: the result goes to other jobs as a shard, so earlier work on another base does not count.
    `budget_share` is how much of what is left of the budgets this job may use. `given` are stories that are
    in no file; then only those files are read that `sources` name. `fetches` brings clones of repositories
    that stories name by URL up to date.
    """

    directory: Path
    sources: tuple[str, ...] = ()
    flags: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    retry_failed: bool = False
    again: bool = False
    fresh: bool = False
    shard_in: tuple[Path, ...] | None = None
    is_job: bool = False
    budget_share: Share = Share()
    given: tuple[Story, ...] | None = None
    fetches: bool = False


class Backlog(Struct, frozen=True, kw_only=True):
    """The stories of a request, checked against each other; `stories` are the selected ones in start order.

    `all_stories` are those that were read before any were selected. `other_jobs` are the results of stories
    that belong to other jobs, from their `shards`, and of this job's own that an earlier attempt has done,
    which are `handed_on`. `others` is what all of them have used of the budgets. `durations` are the minutes
    that each story is expected to take, empty where nothing is known. `disjoint` is None if it is not known,
    `overlaps` are pairs of claims that share a path. `failed` says why stories failed in the last run,
    `fresh` start over. `is_job`: the result goes to other jobs as a shard. `sites` are the repositories in
    which they work, by the name that they have for it; that of the run, `repository`, is always one.
    """

    repository: Repository
    loaded: Loaded
    base: str
    all_stories: tuple[Story, ...]
    stories: tuple[Story, ...]
    finished: Mapping[StoryId, Finished]
    notes: tuple[str, ...] = ()
    durations: Mapping[StoryId, float] = field(default_factory=dict)
    other_jobs: Mapping[StoryId, StoryFinished] = field(default_factory=dict)
    handed_on: tuple[StoryId, ...] = ()
    others: OtherJobs = OtherJobs()
    shards: tuple[Shard, ...] = ()
    retry_failed: bool = False
    boundary: tuple[str, ...] = ()
    disjoint: bool | None = None
    overlaps: tuple[Clash, ...] = ()
    failed: Mapping[StoryId, str] = field(default_factory=dict)
    fresh: tuple[StoryId, ...] = ()
    is_job: bool = False
    sites: Mapping[str, Site] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The run's settings, from all sources."""
        return self.loaded.settings

    @property
    def several(self) -> bool:
        """Whether stories work in several repositories."""
        return len(self.sites) > 1

    def stories_in(self, site: Site) -> tuple[Story, ...]:
        """Return the stories of this job that work in a repository."""
        return tuple(story for story in self.own if story.repo == site.name)

    @property
    def failed_quick(self) -> dict[StoryId, str]:
        """The stories without steps that failed in the last run; those with steps keep that in a file."""
        quick = {story.id for story in self.own if story.flow == QUICK.name}
        return {story_id: reason for story_id, reason in self.failed.items() if story_id in quick}

    @property
    def own(self) -> tuple[Story, ...]:
        """The stories that this job runs or finds done."""
        return tuple(story for story in self.stories if story.id not in self.other_jobs)

    @property
    def worktree_root(self) -> Path:
        """The folder of this run's worktrees."""
        return self.sites[HOME].worktree_root


class Plan(Backlog, frozen=True, kw_only=True):
    """Everything that a run needs, decided before anything starts."""

    workers: Mapping[StoryId, Workers]


def make_plan(request: RunRequest) -> Plan:
    """Read and check everything; the first problem is raised."""
    backlog = load_backlog(request)
    workers = {story.id: workers_of(story, backlog.settings) for story in backlog.own}
    require_clear_models(workers.values(), backlog.settings)
    _require_apprise(backlog.settings)
    parts = structs.asdict(backlog)
    notes = (
        *backlog.notes,
        *(note for site in backlog.sites.values() for note in _notes_in(site, backlog)),
        *_auto_notes(backlog.own, workers, backlog.settings),
        *_attempt_notes(backlog.own, backlog.settings),
        *candidate_notes(backlog.own, backlog.settings),
        *require_prices(workers.values(), backlog.settings),
    )
    if backlog.settings.base_check != Mode.OFF:
        for site in backlog.sites.values():
            left = [story for story in backlog.stories_in(site) if story.id not in backlog.finished]
            notes += require_seen(site.repository, site.base, left, site.settings)
    return Plan(**{**parts, "notes": notes}, workers=workers)


def _notes_in(site: Site, backlog: Backlog) -> tuple[str, ...]:
    """Check the files of a repository that its stories need; return what the user should know about it."""
    stories, settings = backlog.stories_in(site), site.settings
    if settings.prompt_template:
        load_template(site.repository.top / settings.prompt_template)
    notes = (
        *shared_file_notes(site.repository, stories, settings),
        *sparse_notes(site.repository, site.base, stories, settings),
    )
    return notes if site.is_home else tuple(f"{site.label}: {note}" for note in notes)


def _require_apprise(settings: Settings) -> None:
    """Raise where notifications are to go to URLs, and nothing here can send them."""
    if settings.notify_urls and find_spec("apprise") is None:
        raise SettingsError(
            "notify-urls needs the package apprise, which is not installed",
            hint="install it with `pip install 'autopilot-multi[notify]'`, or remove notify-urls.",
        )


def load_backlog(request: RunRequest) -> Backlog:
    """Read the stories and put them in order, without looking for agents."""
    repository = Repository.open(request.directory)
    top = repository.top
    loaded = with_threshold(load_settings(top=top, flags=request.flags, environ=os.environ), repository)
    settings = loaded.settings
    require_ownership(settings)
    sited = load_sites(
        repository, loaded, _all_stories(request, settings, top), flags=request.flags, fetches=request.fetches
    )
    all_stories, sites = sited.stories, {HOME: _home(repository, settings), **sited.others}
    base = sites[HOME].base
    # Ownership is checked against all stories, so that a name is not unknown just because --only omits it.
    ownership = read_ownership(loaded, all_stories, complete=not request.sources and request.given is None)

    shards = load_shards(request.shard_in or ())
    only = _selected(request, shards.shards, repository)
    # What a selected story depends on is part of the plan; the run finds it done, or does it first.
    selected = closure(all_stories, only) if only else all_stories
    stories = ordered(
        with_flow(story, sites[story.repo].repository.top, sites[story.repo].settings) for story in selected
    )
    claimed = claims_in(sites, stories, ownership)

    earlier = load_earlier(repository, claimed.stories)
    # Ordered again: the first order found bad dependencies early, this one puts the longest chain first.
    durations = expected_durations(claimed.stories, earlier.minutes)
    order = ordered(claimed.stories, durations)

    sites = _shareable(sites, order)
    again = _again(request, order)
    done = _without(earlier.finished, again)
    finished = _present(sites, order, done, only_on_base=request.is_job)
    others = _used(request, shards.shards, settings, base)
    handed = _without(handed_on(shards.shards, order, only=only, base=base), again)
    left = [story for story in order if story.id not in finished]
    said = (*loaded.notes, *sited.notes, *shards.problems, *claimed.notes)
    return Backlog(
        repository=repository,
        loaded=loaded,
        base=base,
        all_stories=all_stories,
        stories=order,
        finished=finished,
        durations=durations,
        notes=(*said, *_order_notes(order, settings, others)),
        other_jobs={**_other_jobs(request, shards.shards, left, only=only, base=base), **handed},
        handed_on=tuple(handed),
        others=others,
        shards=shards.shards,
        retry_failed=request.retry_failed,
        is_job=request.is_job,
        sites=sites,
        boundary=ownership.boundary,
        disjoint=claimed.disjoint,
        overlaps=claimed.overlaps,
        failed={} if request.is_job else _without(earlier.failed, again),
        fresh=_fresh(request, settings, [*again, *(only if request.retry_failed else ())], finished),
    )


def _home(repository: Repository, settings: Settings) -> Site:
    """Return the repository of the run; its base is resolved once, so that all stories have the same."""
    head = repository.head() if settings.base == "HEAD" else None  # as a rule without a process
    base = head or repository.resolve(settings.base)
    return Site(name=HOME, label=label_of(repository), repository=repository, settings=settings, base=base)


def _shareable(sites: Mapping[str, Site], stories: Sequence[Story]) -> dict[str, Site]:
    """Return the repositories in which these stories work; raises if the checkout of one cannot be shared."""
    used = {HOME, *(story.repo for story in stories)}
    found = {name: site for name, site in sites.items() if name in used}
    for site in found.values():
        require_shareable(site.settings, site.repository, site.base)
    return found


def _present(
    sites: Mapping[str, Site],
    stories: Sequence[Story],
    done: Mapping[StoryId, Finished],
    *,
    only_on_base: bool,
) -> dict[StoryId, Finished]:
    """Return the finished stories whose commits their repositories still have."""
    repos = {story.id: story.repo for story in stories}
    kept: dict[StoryId, Finished] = {}
    for name, site in sites.items():
        there = {story_id: each for story_id, each in done.items() if repos[story_id] == name}
        kept |= still_present(site.repository, there, site.base, only_on_base=only_on_base)
    return kept


def _all_stories(request: RunRequest, settings: Settings, top: Path) -> tuple[Story, ...]:
    """Read the stories of a request, or those of the settings."""
    cwd = request.directory.resolve()
    if request.given is None or request.sources:
        found = load_stories(request.sources, top=top, default=settings.stories, cwd=cwd)
    else:
        found = ()
    # A file wins: its author may have changed the story.
    ids = {story.id for story in found}
    return *found, *(story for story in request.given or () if story.id not in ids)


def _used(request: RunRequest, shards: Sequence[Shard], settings: Settings, base: str) -> OtherJobs:
    """Return what other jobs have used of the budgets, and what this one may use."""
    limit = Amount(tokens=settings.token_budget, cost=settings.cost_budget)
    return used_in(shards, base=base, limit=limit, share=request.budget_share)


def _selected(request: RunRequest, shards: Sequence[Shard], repository: Repository) -> tuple[str, ...]:
    """Return the ids of the stories that were asked for; empty for all."""
    if not request.retry_failed:
        return request.only
    return *request.only, *(unfinished_in(shards) if shards else require_failed(repository))


def _other_jobs(
    request: RunRequest, shards: Sequence[Shard], stories: Sequence[Story], *, only: Sequence[str], base: str
) -> dict[StoryId, StoryFinished]:
    """Return the results that other jobs have for stories that were not selected for this one."""
    if request.shard_in is None:
        return {}
    foreign = [story for story in stories if story.id not in only]
    return results_in(shards, foreign, base=base, rerun_unfinished=not only)


def _again(request: RunRequest, stories: Sequence[Story]) -> set[StoryId]:
    """Return the stories to run again: those that are named, without what they depend on; else all."""
    ids = {story.id for story in stories}
    if not request.again:
        return set()
    named = {StoryId(name) for name in (*request.only, *request.sources)}
    return named if named and named <= ids else ids


def _without(found: Mapping[StoryId, T], names: Collection[StoryId]) -> dict[StoryId, T]:
    return {story_id: value for story_id, value in found.items() if story_id not in names}


def _fresh(
    request: RunRequest, settings: Settings, again: Sequence[str], finished: Mapping[StoryId, Finished]
) -> tuple[StoryId, ...]:
    """Return the stories that start over."""
    if not request.fresh:
        return ()
    if not request.again and not request.retry_failed:
        raise UsageError(
            "--fresh needs to know what starts over",
            hint="add --again, with the ids of stories, or --retry-failed.",
        )
    if settings.bg_isolation == IsolationMode.NONE:
        raise UsageError(
            "--fresh cannot start over in a shared tree, where the work is in the checkout",
            hint="`autopilot-multi rollback` undoes steps there.",
        )
    return tuple(sorted({StoryId(name) for name in again} - set(finished)))


def with_flow(story: Story, top: Path, settings: Settings) -> Story:
    """Return the story with the flow that it follows, which must exist."""
    if story.flow == QUICK.name:
        return story
    from runner.flows.catalog import FlowError, load_flow
    from runner.flows.scan import detect_flow

    edition = Edition(story.dialect or settings.dialect)
    docs = docs_folder(settings.docs_folder, story.id)
    name = detect_flow(top, edition, docs=docs) if story.flow == AUTO else story.flow
    try:
        load_flow(name, edition, top)
    except FlowError as error:
        where = f" ({story.source})" if story.source else ""
        raise BacklogError(f"story {story.id}{where}: {error.message}", hint=error.hint) from error
    return replace(story, flow=name)


def _attempt_notes(stories: Sequence[Story], settings: Settings) -> tuple[str, ...]:
    """Say where attempts are allowed that cannot happen, since each of them needs a session."""
    most = max((story.max_attempts or settings.max_attempts for story in stories), default=0)
    sessions = settings.max_sessions or STEP_SESSIONS
    if most <= sessions:
        return ()
    return (f"max-attempts allows {most} attempts at a step, but max-sessions only {sessions} work sessions",)


def _order_notes(stories: Sequence[Story], settings: Settings, others: OtherJobs) -> tuple[str, ...]:
    """Warn of every story whose mode is unknown, and say what other jobs have left of the budgets."""
    warnings = ((story.id, classify(story.mode).warning) for story in stories)
    unknown = (f"story {story_id}: {warning}" for story_id, warning in warnings if warning)
    return *unknown, *budget_notes(Amount(tokens=settings.token_budget, cost=settings.cost_budget), others)


def _auto_notes(
    order: Sequence[Story], workers: Mapping[StoryId, Workers], settings: Settings
) -> tuple[str, ...]:
    """Say which agent `auto` has picked, where it decides."""
    names = {
        workers[story.id].first.agent.name
        for story in order
        if story.command is None and (story.agent or settings.agent) == AUTO
    }
    return tuple(f"agent auto: {name}" for name in sorted(names))

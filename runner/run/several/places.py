"""A run in several repositories: what is found again of them when it is resumed, and its part in each."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import structs
from trio import to_thread

from isolation.errors import IsolationError, RepositoryError
from isolation.git.repository import Repository
from isolation.model import IsolationMode
from isolation.paths import journal_path
from isolation.worktree.pool.pool import Pool
from runner.core.events.fold import fold
from runner.core.model import RunId, RunSnapshot, Story, StoryId
from runner.core.progress.repositories import HOME, RepositoryInfo
from runner.machine.registry import Registry
from runner.plan.guard import WriteGuard
from runner.plan.repositories.site import Site
from runner.plan.settings.json_form import from_json
from runner.plan.shared_tree import EnforcementPlan, open_shared_tree
from runner.plan.stories.sparse import all_sparse
from runner.records.history import left_open
from runner.records.journal import Journal
from runner.run.pool.trees import make_pool
from runner.story.context.context import RunContext


def others_of(run: RunSnapshot) -> dict[str, Site]:
    """Return the other repositories of a run as its journal has them; raises if one is gone. Blocking."""
    return {name: _site(name, info) for name, info in run.repos.items() if name != HOME}


def _site(name: str, info: RepositoryInfo) -> Site:
    repository = repository_at(info)
    settings = from_json(info.settings, top=repository.top)
    return Site(
        name=name, label=info.name, repository=repository, settings=settings, base=info.base, url=info.url
    )


def repository_at(info: RepositoryInfo) -> Repository:
    """Open a repository of a run; raises if it is not where it was."""
    path = Path(info.path)
    try:
        found = Repository.open(path)
    except IsolationError as error:
        raise _gone(info, error.message) from error
    if path not in {found.top, found.common_dir}:
        raise _gone(info, f"{path} lies in {found.top}")
    return found


def _gone(info: RepositoryInfo, why: str) -> RepositoryError:
    return RepositoryError(
        f"the repository {info.name} of this run is not at {info.path} any more: {why}",
        hint="move it back; what its stories have done is on its branches autopilot/…",
    )


def repository_of(home: Repository, run: RunSnapshot, story_id: StoryId) -> Repository:
    """Return the repository in which a story of a run works. Blocking."""
    story = run.stories.get(story_id)
    repo = story.repo if story is not None else HOME
    return home if repo == HOME or repo not in run.repos else repository_at(run.repos[repo])


def folders_of(site: Site) -> tuple[Path, ...]:
    """Return the folders of a repository that sessions elsewhere must not write to."""
    found = (
        site.repository.main_checkout,
        site.repository.top,
        site.repository.common_dir,
        site.worktree_root,
    )
    return tuple(dict.fromkeys(path for path in found if path))


def guards_of(sites: Mapping[str, Site], plans: Mapping[str, EnforcementPlan]) -> dict[str, EnforcementPlan]:
    """Return the enforcement in each repository, with the others closed to its sessions as well.

    What git needs of any of them is visible in all, since git commands are sealed once for the whole run.
    """
    if len(sites) == 1:
        return dict(plans)
    needed = [
        path for plan in plans.values() if plan.write_guard.seal for path in plan.write_guard.seal.needed
    ]
    return {
        name: structs.replace(plan, write_guard=_guard(plan.write_guard, name, sites, needed))
        for name, plan in plans.items()
    }


def _guard(guard: WriteGuard, name: str, sites: Mapping[str, Site], needed: Sequence[Path]) -> WriteGuard:
    beside = tuple(path for other, site in sites.items() if other != name for path in folders_of(site))
    seal = guard.seal and structs.replace(guard.seal, needed=tuple(dict.fromkeys(needed)))
    return structs.replace(guard, beside=beside, seal=seal)


@asynccontextmanager
async def parts_of(
    run: RunContext,
    journal: Journal,
    sites: Mapping[str, Site],
    plans: Mapping[str, EnforcementPlan],
    stories: Sequence[Story],
    *,
    byproducts: Sequence[str],
    doubted: str,
) -> AsyncIterator[RunContext]:
    """Open the parts of a run in its other repositories; yield the run with them."""
    if not sites:
        yield run
        return
    async with AsyncExitStack() as trees:
        others: dict[str, RunContext] = {}
        for name, site in sites.items():
            plan = plans[name]
            own = [story for story in stories if story.repo == name]
            run_id = run.log.snapshot.run_id
            tree = await trees.enter_async_context(
                open_shared_tree(
                    site.repository,
                    run_id,
                    own,
                    site.settings,
                    site.worktree_root,
                    level=plan.level,
                    byproducts=byproducts,
                    beside=plan.write_guard.beside,
                )
            )
            left: Collection[StoryId] = ()
            if site.settings.bg_isolation == IsolationMode.NONE:
                find = partial(left_open, journal, own, site.repository.top, before=run_id)
                left = await to_thread.run_sync(find)
            part = part_of(run, site, plan, doubted=doubted)
            pool = None if tree else await to_thread.run_sync(pool_of, site, own, run_id, plan)
            others[name] = structs.replace(part, left_open=left, shared_tree=tree, pool=pool)
        yield structs.replace(run, others=others)


def part_of(run: RunContext, site: Site, plan: EnforcementPlan, *, doubted: str) -> RunContext:
    """Return the part of a run in another repository, without what its trees need."""
    return structs.replace(
        run,
        repo=site.name,
        own=run.repository,
        repository=site.repository,
        settings=site.settings,
        worktree_root=site.worktree_root,
        write_guard=plan.write_guard,
        registry=Registry(site.repository.common_dir),
        left_open=(),
        shared_tree=None,
        proof=doubted if any(way.certain for way in plan.ways_out) else run.proof,
        pool=None,
        bottoms=None,
    )


def pool_of(site: Site, stories: Sequence[Story], run_id: RunId, plan: EnforcementPlan) -> Pool:
    """Return the worktrees that are kept ready in another repository. Blocking."""
    return make_pool(
        site.repository,
        site.worktree_root,
        run_id,
        site.settings,
        guarded=plan.write_guard.means is not None,
        wanted=not all_sparse(stories, site.settings),  # spares are full
    )


def recorded_run(home: Repository, run_id: RunId) -> RunSnapshot:
    """Return a run as the journal has it, whether it is active or not. Blocking."""
    with Journal.open_readonly(journal_path(home.common_dir)) as journal:
        return fold(run_id, journal.events(run_id))

"""The parts of a run in its repositories, on a worker: the run's own, and others once a story works there.

A worker holds all clones of the run from its start, so that no other run gets one of them. The commits of a
clone come before the first story that works there, and only then can its tree be looked at.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio
from msgspec import Struct, structs
from trio import to_thread

from isolation.git.repository import Repository
from runner.core.model import Story
from runner.core.progress.repositories import HOME
from runner.plan.repositories.site import Site
from runner.plan.shared_tree import EnforcementPlan, enforcement_again
from runner.remote.cluster.travelling import settings_here
from runner.remote.cluster.wire.messages import ClusterError, Place
from runner.remote.cluster.worker.clone import Clone
from runner.run.setup import DOUBTED
from runner.run.several.places import guards_of, part_of, pool_of
from runner.run.side_tasks import pooling
from runner.story.context.context import RunContext
from runner.story.other_sessions import visible


class RunClone(Struct, frozen=True, kw_only=True):
    """A repository of the run on this worker: its clone, and what the coordinator says of it."""

    clone: Clone
    place: Place
    site: Site

    def begin(self) -> None:
        """Make the clone ready for stories; its commits are there. Blocking."""
        self.clone.begin(self.place.base, self.place.identity)


def clones_of(clones: Mapping[str, Clone], places: Mapping[str, Place]) -> dict[str, RunClone]:
    """Open the clones of a run, by the names that stories have for its repositories. Blocking."""
    return {
        name: RunClone(clone=clones[name], place=place, site=_site(name, clones[name].open(), place))
        for name, place in places.items()
    }


def _site(name: str, repository: Repository, place: Place) -> Site:
    settings = settings_here(place.settings)
    return Site(name=name, label=name, repository=repository, settings=settings, base=place.base)


def enforcements_of(clones: Mapping[str, RunClone], stories: Sequence[Story]) -> dict[str, EnforcementPlan]:
    """Find out what keeps sessions in each repository, and out of the clones of the others. Blocking."""
    sites = {name: each.site for name, each in clones.items()}
    return guards_of(sites, {name: _enforcement(site, stories) for name, site in sites.items()})


def _enforcement(site: Site, stories: Sequence[Story]) -> EnforcementPlan:
    own = [story for story in stories if story.repo == site.name]
    return enforcement_again(site.repository, site.settings, site.worktree_root, own)


class Parts:
    """Opens the parts of a run as stories need them; made by `open_parts`."""

    def __init__(
        self,
        home: RunContext,
        clones: Mapping[str, RunClone],
        plans: Mapping[str, EnforcementPlan],
        stories: Sequence[Story],
        *,
        opened: Callable[[Site], None],
        nursery: trio.Nursery,
    ) -> None:
        self.ended = trio.Event()
        self._home = home
        self._clones = clones
        self._plans = plans
        self._stories = stories
        self._tell = opened
        self._nursery = nursery
        self._open: dict[str, RunContext] = {HOME: home}
        self._opening = {name: trio.Lock() for name in clones}

    def clone(self, repo: str) -> Clone:
        """Return the clone in which stories of a repository work."""
        return self._require(repo).clone

    def outline(self, repo: str) -> RunContext:
        """Return what is known of a part that may not be open yet: where it is, and its settings."""
        if repo in self._open:
            return self._open[repo]
        return part_of(self._home, self._require(repo).site, self._plans[repo], doubted=DOUBTED)

    async def open(self, repo: str) -> RunContext:
        """Return a part that is open; the first story that works there opens it."""
        if repo in self._open:
            return self._open[repo]
        async with self._opening[repo]:
            if repo not in self._open:
                part = await to_thread.run_sync(self._opened, repo)
                await self._nursery.start(self._keep, part)
                self._open[repo] = part
                self._tell(self._require(repo).site)
        return self._open[repo]

    def _opened(self, repo: str) -> RunContext:
        """Make a clone ready, and look at its tree. Blocking."""
        here = self._require(repo)
        here.begin()
        guard = self._plans[repo].write_guard  # it keeps the other clones closed, too
        plan = structs.replace(_enforcement(here.site, self._stories), write_guard=guard)
        own = [story for story in self._stories if story.repo == repo]
        pool = pool_of(here.site, own, self._home.log.snapshot.run_id, plan)
        return structs.replace(part_of(self._home, here.site, plan, doubted=DOUBTED), pool=pool)

    def _require(self, repo: str) -> RunClone:
        if repo not in self._clones:
            raise ClusterError(f"this worker does not know the repository '{repo}' of the run")
        return self._clones[repo]

    async def _keep(self, part: RunContext, *, task_status: trio.TaskStatus[None]) -> None:
        """Have others see the part, and its pool be filled, until the run ends here."""
        async with visible(part), pooling(part):
            task_status.started()
            await self.ended.wait()


@asynccontextmanager
async def open_parts(
    home: RunContext,
    clones: Mapping[str, RunClone],
    plans: Mapping[str, EnforcementPlan],
    stories: Sequence[Story],
    opened: Callable[[Site], None],
) -> AsyncIterator[Parts]:
    """Have the parts of a run be opened for the time of the block; `home` is that of its own repository.

    `opened` is called for each other repository once it is open.
    """
    async with visible(home), pooling(home), trio.open_nursery() as nursery:
        parts = Parts(home, clones, plans, stories, opened=opened, nursery=nursery)
        yield parts
        parts.ended.set()

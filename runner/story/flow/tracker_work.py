"""How one story reaches its tracker: the servers that are configured, and the acts that the journal knows.

A server of the user's own runs as the user would start it. One that a file of the repository names runs in
the worktree, confined like a hook: what it runs may be there, where sessions can change it.
"""

import os
import shlex
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct
from msgspec.structs import replace
from trio import from_thread, to_thread

from isolation.git.repository import Repository, scrubbed
from isolation.model import Confinement, Workspace
from runner.core.events.work_items import WorkItemKept, WorkItemPlanned
from runner.core.settings import Settings
from runner.core.work_items.tracker import HOSTED, Tracker
from runner.forge.address import Address
from runner.forge.tracker.access import LaunchOf, Probed, open_backend, probe
from runner.forge.tracker.backend import Backend
from runner.forge.tracker.client import Launch
from runner.forge.tracker.files import load_items, write_ids
from runner.forge.tracker.issues import issues_address, open_issues
from runner.forge.tracker.keeping import Keeping, acts_of, first_commit, marker_of
from runner.forge.tracker.servers import McpServer, Servers, load_servers
from runner.story.context.context import StoryContext
from runner.story.session.environment import session_seal, user_environment


class Way(Struct, frozen=True, kw_only=True):
    """How trackers are reached from here: a repository with its settings, and how a server is started."""

    repository: Repository
    settings: Settings
    launch: LaunchOf

    @asynccontextmanager
    async def open(self, tracker: Tracker, servers: Servers) -> AsyncIterator[Backend]:
        """Open a tracker, signed in; raises TrackerError with the reason if that fails."""
        if tracker in HOSTED:
            address = await to_thread.run_sync(address_of_issues, self.repository, self.settings, tracker)
            yield await open_issues(tracker, address, os.environ, pause=_pause)
            return
        project = self.settings.tracker_project
        async with open_backend(tracker, servers, self.launch, project) as backend:
            yield backend


def address_of_issues(repository: Repository, settings: Settings, tracker: Tracker) -> Address:
    """Return whose issues keep the work items; raises TrackerError if nothing says so. Blocks."""
    remote = settings.draft_remote
    url = repository.run("config", "--get", f"remote.{remote}.url", check=False).stdout.strip()
    return issues_address(
        tracker,
        settings.tracker_project,
        forge=settings.forge,
        url=url,
        remote=remote,
        environ=os.environ,
    )


def _pause(seconds: float) -> None:
    """Wait in a thread; whatever ends the run ends the wait."""
    from_thread.run(trio.sleep, seconds)


class StoryTracker:
    """The way of one story to the trackers that are configured."""

    def __init__(self, context: StoryContext, workspace: Workspace) -> None:
        self._context = context
        self._workspace = workspace

    def servers(self) -> Servers:
        """Read the configured servers; those of the repository as they were when the run began. Blocks."""
        context = self._context
        return load_servers(
            context.repository,
            context.run.base,
            setting=context.settings.tracker_server,
            environ=os.environ,
        )

    def keeps(self, tracker: Tracker) -> bool:
        """Whether this program creates the work items, and not the agents. Blocks.

        Where a command of the user's says whether the tracker can be used, there may be no server at all.
        """
        settings = self._context.settings
        if tracker in HOSTED:
            return True
        if not settings.tracker_auth or settings.tracker_server:
            return True
        return any(server.hinted is tracker for server in self.servers().servers)

    async def probe(self) -> tuple[Servers, Probed]:
        """Find out which trackers the configured servers lead to."""
        servers = await to_thread.run_sync(self.servers)
        return servers, await probe(servers, self._launch, self._context.settings.tracker_project)

    @asynccontextmanager
    async def open(self, tracker: Tracker) -> AsyncIterator[Backend]:
        """Open the tracker, signed in; raises TrackerError with the reason if that fails."""
        context = self._context
        servers = await to_thread.run_sync(self.servers)
        way = Way(repository=context.repository, settings=context.settings, launch=self._launch)
        async with way.open(tracker, servers) as backend:
            yield backend

    def _launch(self, server: McpServer) -> Launch:
        context, keeper = self._context, self._context.run.keeper
        if not server.of_repository:
            environment = scrubbed(os.environ)
            return Launch(keeper=keeper, cwd=Path.home(), environment=environment)
        cwd = context.inside(self._workspace.path, self._workspace)
        environment = {**user_environment(context), **context.run.write_guard.variables, "PWD": str(cwd)}
        confinement = context.confinement(self._workspace, shlex.join(server.command))
        return Launch(keeper=keeper, cwd=cwd, environment=environment, confinement=self._sealed(confinement))

    def _sealed(self, confinement: Confinement | None) -> Confinement | None:
        """Hide what sessions do not see, either; but the tracker is somewhere in the network."""
        found = session_seal(self._context)
        if found is None or confinement is None:
            return confinement
        return replace(found.seal.around(confinement, found.stores, found.environ, found.shows), network=None)

    async def keep(
        self, tracker: Tracker, docs: str, files: Iterable[Path], epic_files: Iterable[Path]
    ) -> bool:
        """Create and link what these files describe, write the ids into them; return whether they changed."""
        top = self._workspace.path
        items, epics = await to_thread.run_sync(lambda: (load_items(top, files), load_items(top, epic_files)))
        acts = tuple(acts_of(items, epics))
        ids: dict[str, str] = {}
        if acts:
            origin = await to_thread.run_sync(self._origin)
            async with self.open(tracker) as backend:
                keeping = Keeping(
                    backend=backend,
                    ledger=_Journal(self._context),
                    mark=self._mark(origin),
                    redactor=self._context.log.redactor,
                )
                ids = await keeping.carry_out(acts)
        return await to_thread.run_sync(write_ids, top, docs, items, ids)

    def _origin(self) -> str:
        """Return what all clones of the repository share: its first commit. Blocks."""
        return first_commit(self._context.repository, self._context.run.base)

    def _mark(self, origin: str) -> Callable[[str], str]:
        return partial(marker_of, origin, self._context.story.id)


class _Journal:
    """The acts of one story in its run's journal."""

    def __init__(self, context: StoryContext) -> None:
        self._context = context

    def known(self, marker: str) -> str | None:
        """Return what is recorded: an id, empty for an intent alone, None for nothing."""
        return self._context.now.work_items.get(marker)

    async def intend(self, marker: str, act: str) -> None:
        """Record what is about to be done; durable when it returns."""
        await self._context.log.record(
            WorkItemPlanned(story_id=self._context.story.id, marker=marker, act=act)
        )

    async def done(self, marker: str, item_id: str) -> None:
        """Record what came of it."""
        await self._context.log.record(
            WorkItemKept(story_id=self._context.story.id, marker=marker, item=item_id)
        )

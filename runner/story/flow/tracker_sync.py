"""Creates the work items of a story that are pending, on request: on its branch, while no run is active.

The markers and the journal are those of a run, so that what a run has begun is completed here, not repeated.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from trio import to_thread

from isolation.git.repository import scrubbed
from isolation.keeper.client import open_keeper
from isolation.paths import keepers_lock_path
from runner.core.errors import RunnerError
from runner.core.events import events as ev
from runner.core.events.work_items import WorkItemKept, WorkItemPlanned
from runner.core.settings import Settings
from runner.core.text.redaction import Redactor
from runner.core.work_items.documents import Kind, WorkItem, is_epics
from runner.core.work_items.tracker import Tracker
from runner.flows.on_request.story_branch import StoryBranch
from runner.forge.tracker.access import probe
from runner.forge.tracker.client import Launch
from runner.forge.tracker.errors import TrackerError
from runner.forge.tracker.files import load_items, write_ids
from runner.forge.tracker.keeping import Act, Keeping, acts_of, described, first_commit, marker_of
from runner.forge.tracker.servers import McpServer, Servers, load_servers
from runner.story.flow.briefing import work_item_files
from runner.story.flow.tracker_gate import by_words, settled
from runner.story.flow.tracker_work import Way


class SyncError(RunnerError):
    """The work items of a story cannot be created now; nothing was changed."""

    code = "tracker"


class Pending(Struct, frozen=True, kw_only=True):
    """What is to be done for one story: its branch, all of its work items, and the acts."""

    on: StoryBranch
    base: str
    items: tuple[WorkItem, ...]
    acts: tuple[Act, ...]

    def words(self, tracker: Tracker) -> tuple[str, ...]:
        """Say what would be done, one line for each act."""
        renamed = [act.item for act in self.acts if act.other is None and act.item.kind is Kind.TASK]
        return (
            *(described(act, tracker) for act in self.acts),
            *(f"rename {item.path} after its id" for item in renamed),
        )


def pending_of(on: StoryBranch, base: str) -> Pending:
    """Find the work items of a story that have no id. Blocks."""
    steps = (one for one in on.flow.steps if one.tracker)
    files = [path for one in steps for path in work_item_files(on.worktree, one, on.cycle)]
    items = load_items(on.worktree, sorted(files, key=lambda path: not is_epics(path.name)))
    epics = [item for item in items if item.kind is Kind.EPIC]
    return Pending(on=on, base=base, items=items, acts=tuple(acts_of(items, epics)))


class Sync:
    """Creates what is pending; `record` appends to the journal of a story's run."""

    def __init__(self, settings: Settings, record: Callable[[str, float, Sequence[ev.Body]], None]) -> None:
        self._settings = settings
        self._record = record

    def foreseen(self, pending: Pending) -> Tracker:
        """Return the tracker by what the settings and the names of servers say; none is started. Blocks."""
        found = settled(self._setting, "") or by_words(self._servers(pending))
        return found.name or Tracker.LOCAL

    @property
    def _setting(self) -> str:
        return "" if self._settings.tracker == Tracker.LOCAL else self._settings.tracker

    def _servers(self, pending: Pending) -> Servers:
        return load_servers(
            pending.on.repository,
            pending.base,
            setting=self._settings.tracker_server,
            environ=os.environ,
        )

    async def carry_out(self, pending: Pending) -> str:
        """Create and link what is pending, and commit the ids; return the new commit, empty without one."""
        on = pending.on
        servers = await to_thread.run_sync(self._servers, pending)
        async with open_keeper(alive_lock=keepers_lock_path(on.repository.common_dir)) as keeper:
            await keeper.ready()

            def launch(server: McpServer) -> Launch:
                cwd = on.worktree if server.of_repository else Path.home()
                return Launch(keeper=keeper, cwd=cwd, environment=scrubbed(os.environ))

            tracker = await self._tracker(servers, launch)
            way = Way(repository=on.repository, settings=self._settings, launch=launch)
            origin = await to_thread.run_sync(first_commit, on.repository, pending.base)
            async with way.open(tracker, servers) as backend:
                ledger = _Journal(on, self._record)
                mark = partial(marker_of, origin, on.story.id)
                redactor = Redactor(os.environ)
                keeping = Keeping(backend=backend, ledger=ledger, mark=mark, redactor=redactor)
                ids = await keeping.carry_out(pending.acts)
        return await to_thread.run_sync(self._commit, pending, ids)

    async def _tracker(self, servers: Servers, launch: Callable[[McpServer], Launch]) -> Tracker:
        found = settled(self._setting, "")
        if found is not None and found.name is not None:
            return found.name
        probed = await probe(servers, launch, self._settings.tracker_project)
        names = list(probed.found)
        if len(names) == 1:
            return names[0]
        why = "; ".join(probed.problems) or "no configured MCP server leads to a tracker"
        raise TrackerError(
            "two trackers are configured" if names else why,
            hint="say which with `tracker`, and configure its MCP server; `github` and `gitlab` need none.",
        )

    def _commit(self, pending: Pending, ids: dict[str, str]) -> str:
        on, at = pending.on, time.time()
        write_ids(on.worktree, on.docs, pending.items, ids)
        trailers = f"Autopilot-Run: {on.run_id}\nAutopilot-Story: {on.story.id}\n"
        tip = on.checkout.commit([on.docs], f"{on.story.title}: work items\n\n{trailers}", at)
        if tip is None:
            return ""
        commits = on.repository.count_commits(on.story.workspace.base or pending.base, tip)
        files = on.story.sessions[-1].files_changed if on.story.sessions else None
        done = ev.Checkpointed(story_id=on.story.id, commit=tip, commits=commits, files=files)
        self._record(on.run_id, at, [done])
        return tip


class _Journal:
    """The acts of one story in the journal of its run."""

    def __init__(self, on: StoryBranch, record: Callable[[str, float, Sequence[ev.Body]], None]) -> None:
        self._on = on
        self._record = record

    def known(self, marker: str) -> str | None:
        """Return what is recorded: an id, empty for an intent alone, None for nothing."""
        return self._on.story.work_items.get(marker)

    async def intend(self, marker: str, act: str) -> None:
        """Record what is about to be done; durable when it returns."""
        await self._append(WorkItemPlanned(story_id=self._on.story.id, marker=marker, act=act))

    async def done(self, marker: str, item_id: str) -> None:
        """Record what came of it."""
        await self._append(WorkItemKept(story_id=self._on.story.id, marker=marker, item=item_id))

    async def _append(self, body: ev.Body) -> None:
        await to_thread.run_sync(self._record, self._on.run_id, time.time(), [body])

"""What runs beside the stories: the view, the aggregated state, the pool of worktrees, drafts, the export.

Each is a block around the orchestrator; when the block is left, what it started has ended.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from trio import to_thread

from isolation.errors import KeeperError
from isolation.git.contained.fifos import set_fifos_aside
from isolation.worktree.pool.turnover import Turnover
from runner.core.events import events as ev
from runner.core.flow import QUICK
from runner.core.model import RunSnapshot, Status, Story
from runner.core.setting_groups.draft_settings import OFF
from runner.core.settings import Settings
from runner.records.event_log import EventLog
from runner.run.control.launch import launch
from runner.run.interaction import View
from runner.run.pool.preparation import preparation_of
from runner.run.pool.trees import count_waiting
from runner.story.context.context import RunContext

if TYPE_CHECKING:
    from runner.flows.overview import AggregatePage

FREE_SECONDS = 2.0
AGGREGATE_SECONDS = 1.0
MOST_LOAD = 0.05
"""Which share of one processor the aggregated state may take."""


@asynccontextmanager
async def refreshing(view: View, hint: Callable[[], str]) -> AsyncIterator[None]:
    """Keep the view current; `hint` returns what Ctrl-C would do now."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(view.refresh, hint)
        yield
        nursery.cancel_scope.cancel()


async def start_export(log: EventLog, settings: Settings, top: Path) -> None:
    """Start the process that sends the run to a collector, if it is wanted; it ends after the run.

    Whatever becomes of it does not concern the run.
    """
    if not settings.otel_endpoint:
        return
    command = ("export", log.snapshot.run_id, "--follow", "--otlp", settings.otel_endpoint)
    try:
        await to_thread.run_sync(launch, top, command)
    except (OSError, KeeperError) as error:
        words = f"metrics and traces are not sent to {settings.otel_endpoint}: {error}"
        await log.record(ev.Noted(message=words))


@asynccontextmanager
async def aggregating(context: RunContext) -> AsyncIterator[None]:
    """Keep the aggregated state current to the second, from the start of the block to its end.

    It is written after every event that it may show, and once a second while agents may change state files;
    if that takes long, less often.
    """
    happened = trio.Event()
    page: AggregatePage | None = None

    def notice(event: ev.Event, _run: RunSnapshot) -> None:
        if not isinstance(event.body, ev.OutputSeen):
            happened.set()

    def write() -> float:
        nonlocal page
        started = time.perf_counter()
        page = page or _page(context)
        page.write(context.log.snapshot)
        return time.perf_counter() - started

    async def keep() -> None:
        nonlocal happened
        while True:
            happened = trio.Event()
            took = await to_thread.run_sync(write)
            await trio.sleep(max(AGGREGATE_SECONDS, took / MOST_LOAD))
            if not _agents_write(context.log.snapshot):
                await happened.wait()

    context.log.subscribe(notice)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        yield
        nursery.cancel_scope.cancel()
    await to_thread.run_sync(write)


@asynccontextmanager
async def freeing(context: RunContext) -> AsyncIterator[None]:
    """Free git commands of sessions that wait for a FIFO, which another one made of a file of git's."""

    async def keep() -> None:
        while True:
            await trio.sleep(FREE_SECONDS)
            await to_thread.run_sync(set_fifos_aside, context.repository.common_dir)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def drafting(context: RunContext, stories: Sequence[Story]) -> AsyncIterator[None]:
    """Open and update the drafts of stories, if that is wanted; otherwise nothing of it is loaded."""
    if context.settings.draft_mr == OFF:
        yield
        return
    from runner.run.drafts.live import publishing

    async with publishing(context, stories):
        yield


@asynccontextmanager
async def pooling(context: RunContext) -> AsyncIterator[None]:
    """Keep worktrees ready for the next stories, of this run and of the next."""
    pool = context.pool
    if pool is None:
        yield
        return

    def base() -> str:
        return context.newest_base

    def running() -> int | None:
        """Return how many trees may come back; None while a story waits for its own."""
        states = context.log.snapshot.stories.values()
        trees = [each for each in states if each.status is Status.RUNNING and each.repo == context.repo]
        return None if any(story.workspace.opening for story in trees) else len(trees)

    pool.preparation = preparation_of(context)
    await to_thread.run_sync(pool.begin)
    if context.bottoms is not None:
        await to_thread.run_sync(context.bottoms.begin)
    if pool.turnover is not None:
        async with _turning_over(context, pool.turnover):
            yield
        return
    if not pool.size:
        yield
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.count_early, context.populate)
        nursery.start_soon(pool.keep, base, running)
        yield
        nursery.cancel_scope.cancel()
    await pool.finish(base())


@asynccontextmanager
async def _turning_over(context: RunContext, turnover: Turnover) -> AsyncIterator[None]:
    """Have small trees go from story to story; none is left at the end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_waiting, context, turnover)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await to_thread.run_sync(turnover.finish)


def _agents_write(run: RunSnapshot) -> bool:
    """Return whether an agent at work may change a state file; `quick` has none."""
    return any(story.status is Status.RUNNING and story.flow != QUICK.name for story in run.stories.values())


def _page(context: RunContext) -> "AggregatePage":
    from runner.flows.overview import AggregatePage

    return AggregatePage(context.repository.top)

"""What runs beside the stories: the view, the `notify` command, the aggregated state.

Each is a block around the orchestrator; when the block is left, what it started has ended.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
from trio import to_thread

from runner.core.events import events as ev
from runner.core.flow import QUICK
from runner.core.model import RunSnapshot, Status, StoryId
from runner.run.interaction import View
from runner.story.context.context import RunContext
from runner.story.flow.decisions import attention, open_questions

if TYPE_CHECKING:
    from runner.flows.overview import AggregatePage

AGGREGATE_SECONDS = 1.0
MOST_LOAD = 0.05
"""Which share of one processor the aggregated state may take."""

_MOST_NOTICES = 1000


@asynccontextmanager
async def refreshing(view: View, hint: Callable[[], str]) -> AsyncIterator[None]:
    """Keep the view current; `hint` returns what Ctrl-C would do now."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(view.refresh, hint)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def notifying(context: RunContext, *, quiet: bool) -> AsyncIterator[None]:
    """Run the user's `notify` command for every question, all of them before the block is left."""
    send, receive = trio.open_memory_channel[StoryId](_MOST_NOTICES)

    def notice(event: ev.Event, _run: RunSnapshot) -> None:
        if isinstance(event.body, ev.DecisionAsked):
            send.send_nowait(event.body.story_id)

    async def notify() -> None:
        async for story_id in receive:
            asked = [one for one in open_questions(context.log.snapshot) if one.story_id == story_id]
            for question in asked:
                complaint = await attention(
                    context.settings.notify, question, keeper=context.keeper, cwd=context.repository.top
                )
                if complaint is not None:
                    await context.log.record(complaint)

    if quiet or not context.settings.notify:
        yield
        return
    context.log.subscribe(notice, ev.DecisionAsked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(notify)
        yield
        send.close()  # not cancelled: the task ends once it has sent what is left


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
async def pooling(context: RunContext) -> AsyncIterator[None]:
    """Keep worktrees ready for the next stories, of this run and of the next."""
    pool = context.pool
    if pool is None:
        yield
        return

    def base() -> str:
        return context.log.snapshot.followed or context.log.snapshot.base

    def running() -> int | None:
        """Return how many trees may come back; None while a story waits for its own."""
        trees = [story for story in context.log.snapshot.stories.values() if story.status is Status.RUNNING]
        return None if any(story.workspace.opening for story in trees) else len(trees)

    await to_thread.run_sync(pool.begin)
    if not pool.size:
        yield
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.keep, base, running)
        yield
        nursery.cancel_scope.cancel()
    await pool.finish(base())


def _agents_write(run: RunSnapshot) -> bool:
    """Return whether an agent at work may change a state file; `quick` has none."""
    return any(story.status is Status.RUNNING and story.flow != QUICK.name for story in run.stories.values())


def _page(context: RunContext) -> "AggregatePage":
    from runner.flows.overview import AggregatePage

    return AggregatePage(context.repository.top)

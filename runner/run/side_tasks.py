"""What runs beside the stories: the view, the `notify` command, the aggregated state.

Each is a block around the orchestrator; when the block is left, what it started has ended.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import trio
from trio import to_thread

from runner.core.events import events as ev
from runner.core.model import RunSnapshot, StoryId
from runner.run.interaction import View
from runner.story.context.context import RunContext
from runner.story.flow.decisions import attention, open_questions

AGGREGATE_SECONDS = 1.0
_MOST_NOTICES = 1000
_CHANGES_THE_AGGREGATE = (
    ev.StoryFinished,
    ev.DecisionAsked,
    ev.DecisionAnswered,
    ev.StepFinished,
    ev.AttemptFailed,
    ev.BudgetAwaited,
)


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
    """Keep the aggregated state file current: after every event that changes it, and once more at the end."""
    send, receive = trio.open_memory_channel[None](1)

    def notice(_event: ev.Event, _run: RunSnapshot) -> None:
        with suppress(trio.WouldBlock):  # one is due already, and will include this too
            send.send_nowait(None)

    async def keep() -> None:
        async for _ in receive:
            await trio.sleep(AGGREGATE_SECONDS)  # what else happens in this time is written along with it
            await to_thread.run_sync(_aggregate, context)

    context.log.subscribe(notice, *_CHANGES_THE_AGGREGATE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        yield
        nursery.cancel_scope.cancel()
    await to_thread.run_sync(_aggregate, context)


def _aggregate(context: RunContext) -> None:
    from runner.flows.overview import write_aggregate

    write_aggregate(context.log.snapshot, context.repository.top)

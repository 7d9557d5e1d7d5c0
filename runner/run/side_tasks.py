"""What goes on beside the stories: the desk where a person answers, the notifier, the aggregated state.

Each is a block around the orchestrator; when the block is left, what was begun is finished.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import trio

from isolation.git.repository import offload
from runner.core.events import events as ev
from runner.core.model import RunSnapshot, StoryId
from runner.records.event_log import EventLog
from runner.run.orchestrator import Orchestrator
from runner.story.context.context import Tools
from runner.story.decisions import attention, open_questions

AGGREGATE_SECONDS = 1.0
_TELLING = (ev.StoryFinished, ev.DecisionAsked, ev.DecisionAnswered, ev.StepFinished, ev.AttemptFailed)


class Screen(Protocol):
    """What shows the run, and can hold still while a question is asked."""

    def pause(self) -> None:
        """Keep still."""

    def go_on(self) -> None:
        """Show the run again."""


class Port:
    """What the desk sees of the run: its snapshot, its changes, and a place for answers."""

    def __init__(self, *, recorder: EventLog, orchestrator: Orchestrator, screen: Screen) -> None:
        self._recorder = recorder
        self._orchestrator = orchestrator
        self._screen = screen
        self._change = trio.Event()
        recorder.subscribe(self._notice)

    def snapshot(self) -> RunSnapshot:
        """Give the run as it is now."""
        return self._recorder.snapshot

    async def changed(self) -> None:
        """Wait until something happens to the run."""
        await self._change.wait()

    async def answer(self, event: ev.DecisionAnswered) -> None:
        """Take an answer; its story goes on."""
        await self._orchestrator.answer(event)

    def put_off(self) -> None:
        """Hear that fewer answers are awaited than before."""
        self._orchestrator.look_again()

    def pause(self) -> None:
        """Keep the screen still."""
        self._screen.pause()

    def go_on(self) -> None:
        """Give the screen back."""
        self._screen.go_on()

    def _notice(self, event: ev.Event, _run: RunSnapshot) -> None:
        if not isinstance(event.body, ev.OutputSeen):
            self._change.set()
            self._change = trio.Event()


class Desk(Protocol):
    """Where a person answers while the run goes on."""

    def waits(self, run: RunSnapshot) -> bool:
        """Tell whether an answer is still awaited here."""

    async def serve(self, port: Port) -> None:
        """Ask whatever is open until cancelled."""


@asynccontextmanager
async def attended_by(desk: Desk | None, port: Port) -> AsyncIterator[None]:
    """Let the desk ask beside the run; what is not answered when the run ends stays open."""
    async with trio.open_nursery() as nursery:
        if desk is not None:
            nursery.start_soon(desk.serve, port)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def heralding(tools: Tools, *, quiet: bool) -> AsyncIterator[None]:
    """Call the user's `notify` command for every question, all of them before the block is left."""
    send, receive = trio.open_memory_channel[StoryId](1000)

    def notice(event: ev.Event, _run: RunSnapshot) -> None:
        if isinstance(event.body, ev.DecisionAsked) and tools.settings.notify and not quiet:
            send.send_nowait(event.body.story_id)

    async def herald() -> None:
        async for story_id in receive:
            asked = [one for one in open_questions(tools.recorder.snapshot) if one.story_id == story_id]
            for question in asked:
                complaint = await attention(
                    tools.settings.notify, question, keeper=tools.keeper, cwd=tools.repository.top
                )
                if complaint is not None:
                    await tools.recorder.record(complaint)

    tools.recorder.subscribe(notice)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(herald)
        yield
        send.close()


@asynccontextmanager
async def aggregating(tools: Tools) -> AsyncIterator[None]:
    """Keep the aggregated state current: after every event that tells, and once more at the end."""
    send, receive = trio.open_memory_channel[None](1)

    def notice(event: ev.Event, _run: RunSnapshot) -> None:
        if isinstance(event.body, _TELLING):
            with suppress(trio.WouldBlock):  # one is due already, and will see this too
                send.send_nowait(None)

    async def keep() -> None:
        async for _ in receive:
            await trio.sleep(AGGREGATE_SECONDS)  # what else happens in this time is told along
            await offload(_aggregate, tools)

    tools.recorder.subscribe(notice)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        yield
        nursery.cancel_scope.cancel()
    await offload(_aggregate, tools)


def _aggregate(tools: Tools) -> None:
    from runner.flows.overview import write_aggregate

    write_aggregate(tools.recorder.snapshot, tools.repository.top)

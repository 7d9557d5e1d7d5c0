"""The coordinator's side of requests: read them from the journal, act on them, answer each once."""

from collections.abc import Awaitable, Callable, Sequence

import trio
from msgspec import Struct

from runner.core.events import events as ev
from runner.core.events.steering import AdmissionContinued, AdmissionPaused, RequestAnswered
from runner.core.model import StoryId
from runner.records.journal import Request
from runner.run.control import requests as rq
from runner.run.control.changes import PERSON, BacklogChanges
from runner.story.context.context import RunContext
from runner.story.context.stop import STOP_COMMAND, STOP_COMMAND_NOW, Level

REQUEST_SECONDS = 0.3


class RequestService(Struct, frozen=True, kw_only=True):
    """Acts on what other processes ask of this run, in the order in which they asked.

    `load` returns the requests after a number; it blocks and is called in a thread. `answer` records the
    answer to a decision, `changes` change the backlog. `wake` decides again what may start.
    """

    context: RunContext
    load: Callable[[int], Sequence[Request]]
    answer: Callable[[ev.DecisionAnswered], Awaitable[None]]
    wake: Callable[[], None]
    changes: BacklogChanges

    async def serve(self) -> None:
        """Act on requests until cancelled; what was asked of an earlier process of this run is left alone."""
        last = max((row.id for row in await self._load(0)), default=0)
        while True:
            await trio.sleep(REQUEST_SECONDS)
            for row in await self._load(last):
                last = row.id
                # A request that ends the run is answered, too, although the run then cancels this task.
                with trio.CancelScope(shield=True):
                    problem = await self._act(row)
                    await self.context.log.record(RequestAnswered(request_id=row.id, problem=problem))

    async def _load(self, last: int) -> Sequence[Request]:
        return await trio.to_thread.run_sync(self.load, last)

    async def _act(self, row: Request) -> str:
        """Carry out one request; return why not, empty if it was carried out."""
        try:
            request = rq.decode(row)
        except rq.UnknownRequestError as error:
            return str(error)
        match request:
            case rq.Stop():
                self._stop(request.story_id, now=request.now)
            case rq.Answer():
                await self._answer(request)
            case rq.Pause() | rq.Unpause():
                await self._pause(paused=isinstance(request, rq.Pause))
            case rq.Add():
                return await self.changes.add(request)
            case rq.Retry():
                return await self.changes.retry(request)
            case rq.TakeOver():
                return self.changes.take_over(request)
        return ""

    def _stop(self, story_id: StoryId | None, *, now: bool) -> None:
        level = Level.STOP if now else Level.FINISH
        by = STOP_COMMAND_NOW if now else STOP_COMMAND
        if story_id is None:
            self.context.control.raise_run(level, by)
        else:
            self.context.control.raise_story(story_id, level, by)
            self.wake()

    async def _answer(self, request: rq.Answer) -> None:
        await self.answer(
            ev.DecisionAnswered(
                story_id=request.story_id, decision_id=request.decision, letter=request.letter, by=PERSON
            )
        )

    async def _pause(self, *, paused: bool) -> None:
        if self.context.log.snapshot.paused is not paused:
            change = AdmissionPaused(by=PERSON) if paused else AdmissionContinued(by=PERSON)
            await self.context.log.record(change)
        self.wake()

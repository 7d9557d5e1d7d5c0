"""The forecast beside a running run: made in a thread after commits, rarely, and never in a story's way."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from msgspec import structs
from msgspec.structs import replace
from trio import to_thread

from isolation.errors import IsolationError
from isolation.git.forecast.forecaster import Forecaster
from isolation.git.forecast.scratch import scratch
from runner.core.errors import JournalError
from runner.core.events import events as ev
from runner.core.events import landing as ld
from runner.core.forecast.clashes import Clash, Forecast
from runner.core.model import RunSnapshot, Status
from runner.run.forecast.tips import SHARED, can_foresee, forecast, target, tips_of
from runner.story.context.context import RunContext

PAUSE_SECONDS = 3.0
"""How long after a look the next one is made at the earliest."""

LOOK_SECONDS = 30.0
"""How often working trees are looked at while nothing is committed."""

MOST_LOAD = 0.02
"""Which share of one processor the forecast may take."""

_TWO = 2
_MOST_CLASHES, _MOST_FILES = 100, 20


@asynccontextmanager
async def forecasting(context: RunContext) -> AsyncIterator[None]:
    """Foresee conflicts from the start of the block to its end, and record them when they have changed."""
    run = context.log.snapshot
    own = [story for story in run.stories.values() if story.repo == context.repo]
    if run.isolation == SHARED or len(own) < _TWO or not can_foresee(context.repository):
        yield
        return
    live = _Live(context)
    context.log.subscribe(live.notice, ev.Checkpointed, ev.StoryFinished)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(live.keep)
        yield
        nursery.cancel_scope.cancel()
    states = context.log.snapshot.stories.values()
    if sum(1 for story in states if story.workspace.commits and story.repo == context.repo) >= _TWO:
        await live.look()


class _Live:
    """Looks at the stories of a run again and again."""

    def __init__(self, context: RunContext) -> None:
        self._log = context.log
        self._repository = context.repository
        self._repo = context.repo
        self._forecaster = Forecaster()
        self._happened = trio.Event()

    def notice(self, _event: ev.Event, _run: RunSnapshot) -> None:
        """Take note that something was committed."""
        self._happened.set()

    async def keep(self) -> None:
        """Look after commits, and now and then at what is not committed; never often."""
        pause = PAUSE_SECONDS
        while True:
            await trio.sleep(pause)
            with trio.move_on_after(LOOK_SECONDS):
                await self._happened.wait()
            self._happened = trio.Event()
            if _at_work(self._log.snapshot, self._repo):
                pause = max(PAUSE_SECONDS, await self.look() / MOST_LOAD)

    async def look(self) -> float:
        """Foresee, record what has changed, and return how long it took."""
        began = time.perf_counter()
        try:
            body = _body(await to_thread.run_sync(self._foresee))
            known = self._log.snapshot.forecasts.get(self._repo)
            if body.clashes if known is None else body != _body(known):
                await self._log.record(replace(body, repo=self._repo))
        except (IsolationError, JournalError, OSError):
            pass  # a forecast is no reason to disturb a run
        return time.perf_counter() - began

    def _foresee(self) -> Forecast:
        onto, commit = target(self._repository)
        with scratch(self._repository) as place:
            tips = tips_of(self._log.snapshot, place, repo=self._repo)
            if not tips:
                return Forecast()
            return forecast(self._forecaster, place, tips, onto=onto, commit=commit)


def _at_work(run: RunSnapshot, repo: str) -> bool:
    """Whether there are two stories in a repository that may conflict by now."""
    own = (story for story in run.stories.values() if story.repo == repo)
    return sum(1 for story in own if story.status in {Status.RUNNING, Status.DONE}) >= _TWO


def _body(made: Forecast) -> ld.ConflictsForeseen:
    shown = tuple(_document(clash) for clash in made.clashes[:_MOST_CLASHES])
    return ld.ConflictsForeseen(
        clashes=shown,
        order=made.order if shown else (),
        lost=made.lost,
        uncommitted=made.uncommitted if shown else (),
        onto=made.onto if shown else "",
        more=made.more + len(made.clashes) - len(shown),
    )


def _document(clash: Clash) -> dict[str, object]:
    fields = structs.asdict(clash)
    return {**fields, "stories": list(clash.stories), "files": list(clash.files[:_MOST_FILES])}

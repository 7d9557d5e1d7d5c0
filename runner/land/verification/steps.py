"""The steps of one landing in the journal: which sequence of stories is verified, and what came of it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio
from msgspec import Struct
from trio import to_thread

from runner.core.events import landing as ld
from runner.core.landing.search import Stories
from runner.core.model import StoryId
from runner.core.progress.landing import GREEN, RED, STOPPED
from runner.land.landings import LandingLog, Owners
from runner.land.verification.verifier import Verdict, Verifier


class Step(Struct, kw_only=True):
    """A verification that runs; its caller sets the verdict before it ends."""

    number: int
    verdict: Verdict | None = None


class Steps:
    """Records the steps, each once, in every run that has a story in the train."""

    def __init__(self, log: LandingLog, verifier: Verifier, landing_id: str, owners: Owners) -> None:
        self._log = log
        self._verifier = verifier
        self._landing_id = landing_id
        self.owners = owners
        self._number = 0
        self._conflicts: set[StoryId] = set()

    @asynccontextmanager
    async def verifying(self, stories: Stories) -> AsyncIterator[Step]:
        """Record that a sequence is verified while the block lasts; several may be at once."""
        self._number += 1
        step = Step(number=self._number)
        await self._record(ld.BatchStarted(landing_id=self._landing_id, number=step.number, stories=stories))
        try:
            yield step
        finally:
            with trio.CancelScope(shield=True):
                await self._record(self._ended(step, stories))

    def _ended(self, step: Step, stories: Stories) -> ld.BatchEnded:
        verdict = step.verdict
        green = verdict is not None and verdict.green
        return ld.BatchEnded(
            landing_id=self._landing_id,
            number=step.number,
            stories=stories,
            outcome=STOPPED if verdict is None else GREEN if green else RED,
            command=verdict.command if verdict else "",
            detail=verdict.detail if verdict else "",
            verify_runs=self._verifier.started - self._verifier.canceled,
        )

    async def conflict(self, stories: Stories) -> None:
        """Record, once, that the last of these does not merge onto the others."""
        if stories and stories[-1] not in self._conflicts:
            self._conflicts.add(stories[-1])
            await self._record(
                ld.MergeConflicted(landing_id=self._landing_id, story=stories[-1], onto=stories[:-1])
            )

    async def rebuilt(self, tip: str, number: int) -> None:
        """Record that the target has moved, so that everything is asked again."""
        self._conflicts.clear()
        await self._record(ld.TrainRebuilt(landing_id=self._landing_id, tip=tip, number=number))

    async def _record(self, body: ld.LandingBody) -> None:
        await to_thread.run_sync(self._log.record_whole, self.owners, body)


def left_out(stories: Iterable[tuple[StoryId, str, str, tuple[str, ...]]]) -> tuple[dict[str, object], ...]:
    """Return stories that did not land as the end of a landing records them."""
    return tuple(
        {"story": story, "why": why, "reason": reason, "with": list(others)}
        for story, why, reason, others in stories
    )

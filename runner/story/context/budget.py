"""The run's budget in use: what is reserved for running sessions, and a way to wait for a part of it."""

from collections.abc import Callable, Sequence

import trio

from runner.core.limits.budget import (
    Amount,
    Expected,
    Kind,
    Part,
    Spending,
    expect,
    guessed,
    set_aside,
    shortage,
    spent,
)
from runner.core.model import RunSnapshot, SessionKind, StoryId
from runner.core.settings import Settings


class BudgetLedger:
    """Hands out parts of the budget; one story has one part at a time.

    `past` is what sessions of earlier runs have spent; it is read only when there is a budget.
    """

    def __init__(
        self,
        settings: Settings,
        snapshot: Callable[[], RunSnapshot],
        past: Callable[[], Sequence[Spending]] = tuple,
    ) -> None:
        self._limit = Amount(tokens=settings.token_budget, cost=settings.cost_budget)
        self._said = Amount(tokens=settings.session_tokens, cost=settings.session_cost)
        self._most = settings.max_stories
        self._snapshot = snapshot
        self._past = past() if self._limit != Amount() else ()
        self._parts: dict[StoryId, Part] = {}
        self._changed = trio.Event()

    def take(self, story_id: StoryId, kind: Kind, usual: Amount) -> Amount | str:
        """Return what the story's next session may spend; else why it must wait for another one.

        `usual` is what to expect of its agent while nothing is known.
        """
        if self._limit == Amount():
            return Amount()
        run = self._snapshot()
        slots = min(self._most, sum(not story.status.final for story in run.stories.values()))
        expected = self._expected(run, kind, usual, slots)
        held, used = list(self._parts.values()), spent(run.usage)
        part = set_aside(self._limit, used, held, expected.amount, slots=slots)
        if part is None:
            return shortage(self._limit, used, held, expected)
        self._parts[story_id] = part
        return part.allowance

    def _expected(self, run: RunSnapshot, kind: Kind, usual: Amount, slots: int) -> Expected:
        ended = (
            Spending(
                kind=Kind(agent=session.agent, model=session.model, step=session.step.name),
                amount=spent(session.usage),
            )
            for story in run.stories.values()
            for session in story.sessions
            if session.kind is SessionKind.WORK and session.ended_at is not None
        )
        guess = guessed(self._limit, slots, usual=usual)
        return expect(kind, run=ended, past=self._past, said=self._said, guess=guess)

    def give_back(self, story_id: StoryId) -> None:
        """Return a story's part once its session has ended; what it spent is in the run's records by then."""
        if self._parts.pop(story_id, None) is not None:
            self._changed.set()
            self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until a part is returned."""
        await self._changed.wait()

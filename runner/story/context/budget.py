"""The run's budget in use: what is reserved for running sessions, and a way to wait for a part of it."""

from collections.abc import Callable, Sequence

import trio
from msgspec import Struct

from runner.core.limits.budget import (
    Amount,
    Expected,
    Kind,
    OtherJobs,
    Part,
    Spending,
    expect,
    guessed,
    set_aside,
    shortage,
    spent,
)
from runner.core.limits.kill_switches import Switch
from runner.core.model import KillSwitch, RunSnapshot, SessionKind, StoryId
from runner.core.settings import Settings


class Shortage(Struct, frozen=True, kw_only=True):
    """Why a session gets no part now; with a `switch` it never will, since no other session holds one."""

    reason: str
    switch: KillSwitch | None = None


class BudgetLedger:
    """Hands out parts of the budget; one story has one part at a time.

    `past` is what sessions of earlier runs have spent; it is read only when there is a budget. `limit` is
    what is left for this run after what other jobs have used.
    """

    def __init__(
        self,
        settings: Settings,
        snapshot: Callable[[], RunSnapshot],
        past: Callable[[], Sequence[Spending]] = tuple,
        others: OtherJobs | None = None,
    ) -> None:
        others = others or OtherJobs()
        self.limit = others.left_of(Amount(tokens=settings.token_budget, cost=settings.cost_budget))
        self._strict = others.share < 1
        self._said = Amount(tokens=settings.session_tokens, cost=settings.session_cost)
        self._most = settings.max_stories
        self._snapshot = snapshot
        self._past = past() if self.limit != Amount() else ()
        self._parts: dict[StoryId, Part] = {}
        self._changed = trio.Event()

    def take(self, story_id: StoryId, kind: Kind, usual: Amount) -> Amount | Shortage:
        """Return what the story's next session may spend; else why it must wait for another one.

        `usual` is what to expect of its agent while nothing is known.
        """
        if self.limit == Amount():
            return Amount()
        run = self._snapshot()
        slots = min(self._most, sum(not story.status.final for story in run.stories.values()))
        expected = self._expected(run, kind, usual, slots)
        held, used = list(self._parts.values()), spent(run.usage)
        part = set_aside(self.limit, used, held, expected.amount, strict=self._strict)
        if part is None:
            reason = shortage(self.limit, used, held, expected)
            return Shortage(reason=reason, switch=None if held else self._switch(used, expected, reason))
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
        guess = guessed(self.limit, slots, usual=usual)
        return expect(kind, run=ended, past=self._past, said=self._said, guess=guess)

    def _switch(self, used: Amount, expected: Expected, reason: str) -> KillSwitch:
        left = (self.limit.cost or 0.0) - (used.cost or 0.0)
        costs = self.limit.cost is not None and (expected.amount.cost or 0.0) > left
        return (Switch.COST_BUDGET if costs else Switch.TOKEN_BUDGET).tripped(reason)

    def give_back(self, story_id: StoryId) -> None:
        """Return a story's part once its session has ended; what it spent is in the run's records by then."""
        if self._parts.pop(story_id, None) is not None:
            self._changed.set()
            self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until a part is returned."""
        await self._changed.wait()

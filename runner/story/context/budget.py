"""The run's budget in use: what is set aside for running sessions, and a way to wait for a part of it."""

from collections.abc import Callable

import trio

from runner.core.limits.budget import Amount, estimate, set_aside, spent
from runner.core.model import RunSnapshot, SessionKind, StoryId
from runner.core.settings import Settings


class BudgetLedger:
    """Hands out parts of the budget; one story has one part at a time."""

    def __init__(self, settings: Settings, snapshot: Callable[[], RunSnapshot]) -> None:
        self._limit = Amount(tokens=settings.token_budget, cost=settings.cost_budget)
        self._fallback = Amount(tokens=settings.session_tokens, cost=settings.session_cost)
        self._snapshot = snapshot
        self._parts: dict[StoryId, Amount] = {}
        self._changed = trio.Event()

    def take(self, story_id: StoryId) -> Amount | None:
        """Set aside what the story's next session may spend; None when it must wait for another one."""
        if self._limit == Amount():
            return Amount()
        run = self._snapshot()
        worked = [
            session.usage
            for story in run.stories.values()
            for session in story.sessions
            if session.kind is SessionKind.WORK and session.ended_at is not None
        ]
        part = set_aside(
            self._limit, spent(run.usage), self._parts.values(), estimate(worked, self._fallback)
        )
        if part is not None:
            self._parts[story_id] = part
        return part

    def give_back(self, story_id: StoryId) -> None:
        """Return a story's part once its session has ended; what it spent is in the run's records by then."""
        if self._parts.pop(story_id, None) is not None:
            self._changed.set()
            self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until a part is returned."""
        await self._changed.wait()

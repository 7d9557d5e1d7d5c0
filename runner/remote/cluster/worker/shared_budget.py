"""The run's budget on many machines: sessions elsewhere hold their parts of it, too.

A worker judges by its copy of the run, which is a moment old, so two of them could promise the same money.
The coordinator judges once more, one session after the other, before the start of a session is recorded.
"""

from collections.abc import Callable, Sequence

from runner.core.events import events as ev
from runner.core.limits.budget import Amount, Kind, Part, Spending, spent
from runner.core.limits.kill_switches import budget_used_up
from runner.core.model import RunSnapshot, SessionKind, Status, StoryId
from runner.core.settings import Settings
from runner.records.telemetry import load_spending, records_checkout
from runner.story.context.budget import BudgetLedger, Shortage
from runner.story.context.context import RunContext, StoryContext


class SharedLedger(BudgetLedger):
    """A ledger that counts a part for every session that runs elsewhere, as large as the one asked for."""

    def __init__(
        self,
        settings: Settings,
        snapshot: Callable[[], RunSnapshot],
        past: Callable[[], Sequence[Spending]] = tuple,
    ) -> None:
        super().__init__(settings, snapshot, past)
        self._run = snapshot

    def take(self, story_id: StoryId, kind: Kind, usual: Amount) -> Amount | Shortage:
        """Return what the story's next session may spend, beside what runs on all machines."""
        if self.limit == Amount():
            return Amount()
        run = self._run()
        slots = max(1, sum(story.status is Status.RUNNING for story in run.stories.values()))
        expected = self._expected(run, kind, usual, slots).amount
        elsewhere = [
            story.id
            for story in run.stories.values()
            if story.id not in self._parts
            and story.id != story_id
            and any(
                session.kind is SessionKind.WORK and session.ended_at is None for session in story.sessions
            )
        ]
        for name in elsewhere:
            self._parts[name] = Part(reserved=expected, allowance=expected)
        try:
            return super().take(story_id, kind, usual)
        finally:
            for name in elsewhere:
                self._parts.pop(name, None)

    def wake(self) -> None:
        """Have those look again who wait for a part: a session elsewhere has ended."""
        changed, self._changed = self._changed, type(self._changed)()
        changed.set()


class Authority:
    """The coordinator's word on whether the run can pay for a session that a worker is about to start."""

    def __init__(self, context: RunContext) -> None:
        checkout = records_checkout(context.repository.paths)
        self._ledger = SharedLedger(
            context.settings, lambda: context.log.snapshot, lambda: load_spending(checkout)
        )

    def judge(self, event: ev.Body, context: StoryContext) -> Shortage | None:
        """Set a part aside for a session that is about to start; else return why there is none."""
        if not isinstance(event, ev.SessionStarted) or event.kind != SessionKind.WORK:
            return None
        used_up = budget_used_up(spent(context.run.log.snapshot.usage), self._ledger.limit)
        if used_up is not None:  # a worker may not have heard yet what the last session cost
            return Shortage(reason=used_up.detail, switch=used_up)
        traits = context.workers.at(event.attempt).agent.traits
        kind = Kind(agent=event.agent, model=event.model, step=event.step_name)
        usual = Amount(tokens=traits.usual_tokens, cost=traits.usual_cost)
        part = self._ledger.take(context.story.id, kind, usual)
        return part if isinstance(part, Shortage) else None

    def free(self, story_id: StoryId) -> None:
        """Free the part of a story whose session has ended, or is lost."""
        self._ledger.give_back(story_id)
        self._ledger.wake()

    async def changed(self) -> None:
        """Wait until a part is free."""
        await self._ledger.changed()

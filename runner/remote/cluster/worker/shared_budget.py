"""The run's budget on a worker: sessions of other workers hold their parts of it, too."""

from collections.abc import Callable, Sequence

from runner.core.limits.budget import Amount, Kind, Part, Spending
from runner.core.model import RunSnapshot, SessionKind, Status, StoryId
from runner.core.settings import Settings
from runner.story.context.budget import BudgetLedger, Shortage


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

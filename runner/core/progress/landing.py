"""A landing as it is seen while it happens and afterwards: its train, its verifications and its end."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

GREEN, RED, STOPPED = "green", "red", "stopped"

LEASE = "land-"
"""What the name in the lease begins with while a landing holds the repository; its id follows."""


class LandingState(StrEnum):
    """Where a landing is; one that is not `final` and has no process any more was killed."""

    VERIFYING = "verifying"
    MOVING = "moving"
    LANDED = "landed"
    NOTHING = "nothing"
    ABANDONED = "abandoned"
    UNDOING = "undoing"
    UNDONE = "undone"

    @property
    def final(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self not in {LandingState.VERIFYING, LandingState.MOVING, LandingState.UNDOING}


class Car(StrEnum):
    """What is known of one story of a train."""

    WAITING = "waiting"
    VERIFYING = "verifying"
    GREEN = "green"
    RED = "red"
    CONFLICT = "conflict"
    LEFT = "not landed"
    LANDED = "landed"


class Batch(Struct, frozen=True, kw_only=True):
    """Stories that are verified together, in this order; without any, the target as it is.

    `outcome` is empty while the commands run.
    """

    number: int
    stories: tuple[str, ...]
    started_at: float
    ended_at: float | None = None
    outcome: str = ""
    command: str = ""
    detail: str = ""


class LeftBehind(Struct, frozen=True, kw_only=True):
    """Why a story did not land: `conflict`, `red`, `red-together` or `dependency`, in words, with whom."""

    story: str
    why: str
    reason: str
    others: tuple[str, ...] = ()


class LandingProgress(Struct, frozen=True, kw_only=True):
    """One landing. `train` are its stories over all runs, in their order; `batches` are those on `tip`.

    `conflicts` are the stories that did not merge onto what was green so far. `verify_runs` and `rebuilds`
    count what has happened up to now, `after` is the commit that the target has moved to.
    """

    id: str
    onto: str
    tip: str
    started_at: float
    style: str = "merge"
    state: LandingState = LandingState.VERIFYING
    train: tuple[str, ...] = ()
    batches: tuple[Batch, ...] = ()
    conflicts: tuple[str, ...] = ()
    verify_runs: int = 0
    rebuilds: int = 0
    before: str = ""
    after: str = ""
    landed: tuple[str, ...] = ()
    left: Mapping[str, LeftBehind] = field(default_factory=dict)
    reason: str = ""
    ended_at: float | None = None

    @property
    def was_undone(self) -> bool:
        """Whether its commits no longer count, although the target may still have them in its history."""
        return self.state is LandingState.UNDONE and bool(self.before and self.after)

    @property
    def in_flight(self) -> tuple[Batch, ...]:
        """What is being verified now; with enough slots several at once."""
        return () if self.state.final else tuple(batch for batch in self.batches if not batch.outcome)

    @property
    def green(self) -> tuple[str, ...]:
        """The longest sequence that was green."""
        return max((batch.stories for batch in self.batches if batch.outcome == GREEN), key=len, default=())

    def at_rest(self) -> "LandingProgress":
        """Return it as it is without a process: nothing is verified now."""
        return replace(self, batches=tuple(batch for batch in self.batches if batch.outcome))

    def cars(self) -> dict[str, Car]:
        """Return what is known of each story, in the order of the train."""
        flying = {story for batch in self.in_flight for story in batch.stories}
        green, red = set(self.green), culprits(self.batches)
        return {story: self._car(story, flying, green, red) for story in self.train}

    def _car(self, story: str, flying: set[str], green: set[str], red: Mapping[str, Batch]) -> Car:
        known = {
            Car.LANDED: story in self.landed,
            Car.LEFT: story in self.left and self.state.final,
            Car.RED: story in red and story not in green,
            Car.VERIFYING: story in flying,
            Car.GREEN: story in green,
            Car.CONFLICT: story in self.conflicts,
        }
        return next((car for car, holds in known.items() if holds), Car.WAITING)


def culprits(batches: Sequence[Batch]) -> dict[str, Batch]:
    """Return the stories with which a sequence was red that is green without them, and that verification."""
    green = {(), *(batch.stories for batch in batches if batch.outcome == GREEN)}
    red = [batch for batch in batches if batch.outcome == RED and batch.stories]
    return {batch.stories[-1]: batch for batch in red if batch.stories[:-1] in green}

"""Which worker gets which story: a pure function of what stories need and what workers have free."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from runner.core.model import Story, StoryId
from runner.core.progress.repositories import HOME
from runner.plan.stories.keys import LABEL

Needs: TypeAlias = tuple[tuple[str, float | str], ...]
"""What a story needs, as pairs of a name and an amount, or of `label` and a word."""


class Room(Struct, frozen=True, kw_only=True):
    """What a worker has: slots, how many of them are taken, amounts of resources, and labels."""

    name: str
    slots: int
    taken: int = 0
    offers: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    expects: str = ""
    """The story for which the worker has prepared."""
    repos: frozenset[str] = frozenset()
    """The repositories that it has clones of, by the names that stories have for them."""
    closed: frozenset[str] = frozenset()
    """The repositories that it cannot have clones of."""

    def meets(self, needs: Needs) -> bool:
        """Whether it has what a story needs, when nothing else runs there."""
        return labels_of(needs) <= self.labels and all(
            self.offers.get(name, 0.0) >= amount for name, amount in amounts_of(needs).items()
        )

    def suits(self, needs: Needs, repo: str = HOME) -> bool:
        """Whether a story with these needs could run there, in that repository, when nothing else does."""
        return repo not in self.closed and self.meets(needs)

    def has_room(self, needs: Needs, repo: str = HOME) -> bool:
        """Whether a story with these needs can start there now."""
        return (
            self.taken < self.slots
            and self.suits(needs, repo)
            and all(
                self.offers.get(name, 0.0) - self.used.get(name, 0.0) >= amount
                for name, amount in amounts_of(needs).items()
            )
        )

    def is_kept_from(self, story_id: str) -> bool:
        """Whether its last free slot is for another story, for which it has prepared."""
        return self.expects not in {"", story_id} and self.slots - self.taken <= 1

    def with_story(self, needs: Needs, story_id: str = "") -> "Room":
        """Return the worker with one more story."""
        used = dict(self.used)
        for name, amount in amounts_of(needs).items():
            used[name] = used.get(name, 0.0) + amount
        expects = "" if self.expects == story_id else self.expects
        return replace(self, taken=self.taken + 1, used=used, expects=expects)


def labels_of(needs: Needs) -> frozenset[str]:
    """Return the labels that a story needs."""
    return frozenset(str(value) for name, value in needs if name == LABEL)


def amounts_of(needs: Needs) -> dict[str, float]:
    """Return the amounts that a story needs."""
    return {name: float(value) for name, value in needs if name != LABEL and isinstance(value, int | float)}


def choose(needs: Needs, rooms: Iterable[Room], *, story_id: str = "", repo: str = HOME) -> Room | None:
    """Return the worker for a story: of those with room the one with most free slots, and fewest extras.

    The one that has prepared for the story comes first. A story without needs leaves the special machines to
    those that need them. Of two that are as free as each other, one has a clone of the repository.
    """
    fitting = [room for room in rooms if room.has_room(needs, repo)]
    extras = len(labels_of(needs)) + len(amounts_of(needs))
    return min(
        fitting,
        key=lambda room: (
            not room.expects or room.expects != story_id,
            max(0, len(room.offers) + len(room.labels) - extras),
            room.taken / room.slots,
            repo not in room.repos,
            -room.slots,
            room.name,
        ),
        default=None,
    )


def unplaced(
    stories: Sequence[Story], rooms: Sequence[Room], *, patient: Collection[StoryId] = ()
) -> dict[StoryId, str]:
    """Return which stories cannot all start now, in this order, and what each waits for.

    A story that is `patient` leaves a worker that has prepared for another one to that.
    """
    left = {room.name: room for room in rooms}
    waiting = {}
    for story in stories:
        wanted = story.needs
        free = [room for room in left.values() if story.id not in patient or not room.is_kept_from(story.id)]
        found = choose(wanted, free, story_id=story.id, repo=story.repo)
        if found is not None:
            left[found.name] = found.with_story(wanted, story.id)
        elif not left:
            waiting[story.id] = "waits for a worker of the cluster"
        elif not any(room.meets(wanted) for room in left.values()):
            waiting[story.id] = f"waits for a worker with {described(wanted)}"
        elif not any(room.suits(wanted, story.repo) for room in left.values()):
            waiting[story.id] = "waits for a worker that can have a clone of its repository"
        else:
            waiting[story.id] = "waits for a free slot on a worker"
    return waiting


def unmet(stories: Sequence[Story], rooms: Sequence[Room]) -> dict[StoryId, str]:
    """Return which stories no worker that is here could ever have, and what they need of one."""
    needs = {story.id: story.needs for story in stories}
    return {
        name: described(wanted)
        for name, wanted in needs.items()
        if rooms and not any(room.meets(wanted) for room in rooms)
    }


def described(needs: Needs) -> str:
    """Return needs in words."""
    words = [f"{name} {amount:g}" for name, amount in amounts_of(needs).items()]
    words += [f"label {label}" for label in sorted(labels_of(needs))]
    return ", ".join(words) or "a free slot"

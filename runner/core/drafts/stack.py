"""The branch that the draft of a story is meant for: that of the story it builds on, or the target. Pure."""

from collections.abc import Collection, Mapping, Sequence

from runner.core.model import StoryId

Needs = Mapping[StoryId, Sequence[StoryId]]


def below(story_id: StoryId, needs: Needs) -> frozenset[StoryId]:
    """Return all stories that one builds on, directly or through others."""
    found: set[StoryId] = set()
    left = list(needs.get(story_id, ()))
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(needs.get(name, ()))
    return frozenset(found)


def parent_of(story_id: StoryId, needs: Needs, stacked: Collection[StoryId]) -> StoryId | None:
    """Return the story whose branch the draft is meant for; None if that is the target.

    `stacked` are the stories with a branch that has not landed. A draft can stand on one branch only: of
    several parents that is the one which contains the others. Where none does, it is meant for the target.
    """
    parents = [name for name in needs.get(story_id, ()) if name in stacked]
    for parent in parents:
        beneath = below(parent, needs)
        if all(other == parent or other in beneath for other in parents):
            return parent
    return None


def in_order(names: Collection[StoryId], needs: Needs) -> tuple[StoryId, ...]:
    """Return stories so that each comes after those that it builds on; otherwise as given."""
    done: dict[StoryId, None] = {}

    def take(name: StoryId) -> None:
        if name in done:
            return
        beneath = below(name, needs)
        for other in names:
            if other in beneath and name not in below(other, needs):
                take(other)
        done[name] = None

    for name in names:
        take(name)
    return tuple(done)

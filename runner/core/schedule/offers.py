"""Which branches are worth merging: a branch that another one contains comes with it."""

from collections.abc import Mapping

from runner.core.model import RunSnapshot, Status, StoryId, StorySnapshot


def is_offered(story: StorySnapshot) -> bool:
    """Return whether a story has work that is done and not merged yet."""
    return story.status is Status.DONE and bool(story.next) and not story.workspace.merged


def contained(run: RunSnapshot) -> Mapping[StoryId, StoryId]:
    """Return, for each story whose branch need not be merged itself, one whose branch contains it.

    A story starts from the branches that it depends on, so its own contains them. In a shared tree every
    story starts from the same commit.
    """
    found: dict[StoryId, StoryId] = {}
    if run.isolation != "worktree":
        return found
    for story in run.stories.values():
        # One with a result from elsewhere may have been made before its dependencies were.
        if not is_offered(story) or story.started_at is None:
            continue
        left = list(story.depends_on)
        while left:
            name = left.pop()
            below = run.stories.get(name)
            if below is not None and name not in found:
                found[name] = story.id
                left += below.depends_on
    # The last of a chain is named, not one that is contained itself.
    return {name: _last(found, owner) for name, owner in found.items() if is_offered(run.stories[name])}


def _last(found: Mapping[StoryId, StoryId], name: StoryId) -> StoryId:
    while name in found:
        name = found[name]
    return name

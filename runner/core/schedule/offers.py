"""What the user may take next: branches that are not merged yet, and the command that lands them."""

from collections.abc import Mapping

from msgspec.structs import replace

from runner.core.model import RunSnapshot, Status, StoryId, StorySnapshot

LAND = "autopilot-multi land"


def is_offered(story: StorySnapshot) -> bool:
    """Return whether a story has work that is done and not merged yet."""
    return story.status is Status.DONE and bool(story.next) and not story.workspace.merged


def lands(story: StorySnapshot) -> bool:
    """Return whether `land` takes the work of a story; earlier versions recorded a merge instead."""
    return story.next.startswith((LAND, "git merge "))


def next_command(run: RunSnapshot) -> str:
    """Return the one command that brings the work of all done stories to the target; empty without any."""
    offered = [story for story in run.stories.values() if is_offered(story) and lands(story)]
    return next((story.next for story in offered if story.next.startswith(LAND)), LAND if offered else "")


def without_offers(run: RunSnapshot) -> RunSnapshot:
    """Return the run while a landing is in progress: what it takes is not offered a second time."""
    stories = {
        story.id: replace(story, next="") if is_offered(story) and lands(story) else story
        for story in run.stories.values()
    }
    return replace(run, stories=stories)


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

"""Stories that a landing left out, and that are to be tried again on the new tip of its target."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from isolation.errors import RepositoryError
from isolation.git.landing.restart import restarted
from isolation.git.repository import Repository
from runner.core.events import landing as ld
from runner.core.landing.left_out import RETRY
from runner.core.landing.question import chosen
from runner.core.model import RunSnapshot, Status, Story, StoryId, StorySnapshot
from runner.core.text.names import branch_of


def planned_retries(
    repository: Repository,
    run: RunSnapshot,
    stories: Sequence[Story],
    *,
    without: Collection[StoryId] = (),
) -> tuple[ld.LandingRetryPlanned, ...]:
    """Return the intents for the stories that the user wants to be retried. Moves nothing. Blocking."""
    by_id = {story.id: story for story in stories}
    found = [
        _planned(repository, story, by_id[story.id])
        for story in run.stories.values()
        if story.status is Status.DONE
        and story.id in by_id
        and chosen(story) == RETRY
        and story.id not in without
    ]
    return tuple(planned for planned in found if planned is not None)


def _planned(repository: Repository, story: StorySnapshot, written: Story) -> ld.LandingRetryPlanned | None:
    """Return the intent for one story; None if its work is in the target by now."""
    left, branch = story.workspace.left_out, story.workspace.branch or branch_of(story.id)
    old = repository.branch_tip(branch)
    if left is None or old is None:
        return None
    base = repository.branch_tip(left.onto)
    if base is None:
        raise RepositoryError(
            f"story {story.id} is to be tried again on {left.onto}, which is gone",
            hint=f"`git branch {left.onto} COMMIT` restores it.",
        )
    if repository.is_ancestor(old, base):
        return None
    message = f"Merge {left.onto} into {branch}\n\nAutopilot-Story: {story.id}\n"
    fresh = written.command is not None
    commit, files = restarted(repository, base, old, message, fork=left.fork, fresh=fresh)
    return ld.LandingRetryPlanned(
        story_id=story.id,
        onto=left.onto,
        base=base,
        old=old,
        commit=commit,
        files=files,
        fresh=fresh,
    )


def as_recorded(stories: Sequence[Story], run: RunSnapshot) -> tuple[Story, ...]:
    """Return the stories with the flow that they are in: another try has one step only."""
    return tuple(
        replace(story, flow=run.stories[story.id].flow) if story.id in run.stories else story
        for story in stories
    )

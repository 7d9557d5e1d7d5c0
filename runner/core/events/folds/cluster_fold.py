"""What events do to a story that another machine works on."""

from typing import assert_never

from msgspec.structs import replace

from runner.core.events.cluster import ClusterBody, StoryLost, StoryPlaced
from runner.core.model import StepProgress, StorySnapshot


def after_placing(story: StorySnapshot, body: ClusterBody) -> StorySnapshot:
    """Return a story after it was placed on a worker, or lost there."""
    match body:
        case StoryPlaced():
            placed = replace(story.workspace, worker=body.worker, instance=body.instance, fence=body.fence)
            history = replace(story.step_history, conversation=None) if body.fresh else story.step_history
            # It gets a new folder, also on the same machine; the worker may have been lost unseen.
            progress = _progress_without_tree(story.progress)
            return replace(story, workspace=placed, step_history=history, progress=progress)
        case StoryLost():
            # The folder was on that machine; commits are here, and perhaps the agent's conversation.
            left = replace(story.workspace, path=None, opening=False, worker="", instance="", ports=())
            known = story.step_history.conversation if body.talks_on else None
            history = replace(story.step_history, conversation=known)
            progress = _progress_without_tree(story.progress)
            return replace(story, workspace=left, step_history=history, progress=progress, last_line="")
        case _:
            assert_never(body)


def _progress_without_tree(progress: StepProgress) -> StepProgress:
    """Return how far a story is whose folder is lost: what its last session left there was not committed."""
    if progress.checkpoint_planned_at is None or progress.checkpointed or not progress.implemented:
        return progress
    return replace(progress, implemented=False, checkpoint_planned_at=None)

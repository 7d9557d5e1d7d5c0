"""What events do to a story that another machine works on."""

from typing import assert_never

from msgspec.structs import replace

from runner.core.events.cluster import ClusterBody, StoryLost, StoryPlaced
from runner.core.model import StorySnapshot


def after_placing(story: StorySnapshot, body: ClusterBody) -> StorySnapshot:
    """Return a story after it was placed on a worker, or lost there."""
    match body:
        case StoryPlaced():
            placed = replace(story.workspace, worker=body.worker, instance=body.instance, fence=body.fence)
            return replace(story, workspace=placed)
        case StoryLost():
            # The folder and the agent's conversation were on that machine; commits are here.
            left = replace(story.workspace, path=None, opening=False, worker="", instance="", ports=())
            history = replace(story.step_history, conversation=None)
            return replace(story, workspace=left, step_history=history, last_line="")
        case _:
            assert_never(body)

"""What every program of a story finds in its environment."""

import os

from isolation.git.repository import scrubbed
from isolation.model import Workspace
from runner.core.model import RunSnapshot, Step, StorySnapshot


def environment_of(
    story: StorySnapshot, workspace: Workspace, run: RunSnapshot, *, step: Step | None = None
) -> dict[str, str]:
    """Give the user's environment without git's pointers, and the story's own variables."""
    at = step or story.place
    return scrubbed(os.environ) | {
        # Some programs believe it rather than their working directory, and would work in the main checkout.
        "PWD": str(workspace.path),
        "AUTOPILOT_RUN_ID": run.run_id,
        "AUTOPILOT_STORY_ID": story.id,
        "AUTOPILOT_STEP": f"{at.number} {at.name}",
        "AUTOPILOT_ATTEMPT": str(story.attempt),
        "AUTOPILOT_BASE": workspace.base,
    }

"""What every program of a story finds in its environment."""

import os
from pathlib import Path

from isolation.git.repository import scrubbed
from isolation.model import Workspace
from runner.core.model import RunId, Step, StorySnapshot


def environment_of(
    story: StorySnapshot, workspace: Workspace, run_id: RunId, *, step: Step, cwd: Path
) -> dict[str, str]:
    """Return the user's environment without git's pointers, and the story's own variables."""
    return scrubbed(os.environ) | {
        # Some programs trust it more than their working directory, and would work in the main checkout.
        "PWD": str(cwd),
        "AUTOPILOT_RUN_ID": run_id,
        "AUTOPILOT_STORY_ID": story.id,
        "AUTOPILOT_STEP": f"{step.number} {step.name}",
        "AUTOPILOT_ATTEMPT": str(story.progress.attempt),
        "AUTOPILOT_BASE": workspace.base,
    }

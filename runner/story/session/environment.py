"""What every program of a story finds in its environment."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from isolation.git.repository import scrubbed
from isolation.model import Workspace
from runner.core.model import RunId, Step, StorySnapshot
from runner.core.settings import SETTINGS

PROGRAM = "autopilot-multi"
_USERS_OWN = frozenset(declared.variable for declared in SETTINGS.values() if declared.setting.own)


def program(environ: Mapping[str, str]) -> str:
    """Return how a session calls this program: by name where its `PATH` finds it, else by its path."""
    script = Path(sys.executable).with_name(PROGRAM)
    if not os.access(script, os.X_OK):
        return shlex.join([sys.executable, "-P", "-m", "runner"])
    found = shutil.which(PROGRAM, path=environ.get("PATH"))
    return PROGRAM if found and Path(found).resolve() == script.resolve() else shlex.quote(str(script))


def environment_of(
    story: StorySnapshot, workspace: Workspace, run_id: RunId, *, step: Step, cwd: Path
) -> dict[str, str]:
    """Return the user's environment without git's pointers, and the story's own variables.

    What only the user may say, such as that a repository is trusted, is not handed on to a session.
    """
    kept = {name: value for name, value in scrubbed(os.environ).items() if name not in _USERS_OWN}
    return kept | {
        # Some programs trust it more than their working directory, and would work in the main checkout.
        "PWD": str(cwd),
        "AUTOPILOT_RUN_ID": run_id,
        "AUTOPILOT_STORY_ID": story.id,
        "AUTOPILOT_STEP": f"{step.number} {step.name}",
        "AUTOPILOT_ATTEMPT": str(story.progress.attempt),
        "AUTOPILOT_BASE": workspace.base,
    }

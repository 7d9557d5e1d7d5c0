"""The user's commands around a story's sessions; they run under the keeper like any other and leave a log."""

import os
from pathlib import Path

from isolation.git.repository import offload, scrubbed
from isolation.model import SessionSpec, Workspace
from isolation.paths import story_dir
from runner.core.events.events import Noted
from runner.core.model import Outcome, StoryId
from runner.story.context.context import RunContext
from runner.story.session.session import SessionOrder
from runner.story.session.shared_tree import run_watched


async def run_hook(name: str, *, workspace: Workspace, story_id: StoryId, tools: RunContext) -> bool:
    """Run one hook in the workspace; False when it failed, which is noted."""
    command: str = getattr(tools.settings.hooks, name)
    if not command:
        return True
    return await run_aside(f"hook {name}", command, workspace=workspace, story_id=story_id, tools=tools)


def hook_log(name: str, *, story_id: StoryId, tools: RunContext) -> Path:
    """Give the file that holds what a hook, or another such command, printed."""
    folder = story_dir(tools.repository.common_dir, tools.recorder.snapshot.run_id, story_id)
    return folder / f"{name.replace(' ', '-')}.log"


async def run_aside(
    name: str, command: str, *, workspace: Workspace, story_id: StoryId, tools: RunContext
) -> bool:
    """Run a command of the user's that is no session of the story; False when it failed, which is noted."""
    run_id = tools.recorder.snapshot.run_id
    environment = scrubbed(os.environ) | {
        "AUTOPILOT_RUN_ID": run_id,
        "AUTOPILOT_STORY_ID": story_id,
        "AUTOPILOT_HOOK": name.removeprefix("hook "),
        "AUTOPILOT_BASE": workspace.base,
    }
    order = SessionOrder(
        story_id=story_id,
        spec=SessionSpec(
            argv=("sh", "-c", command),
            cwd=workspace.path,
            env=environment,
            prompt=Path(os.devnull),
            confinement=await offload(tools.confinement, workspace),
        ),
        log=hook_log(name, story_id=story_id, tools=tools),
        log_cap=tools.settings.log_cap_mb << 20,
        grace=tools.settings.grace_seconds,
        stall_seconds=tools.settings.stall_seconds,
    )
    verdict = await run_watched(order, tools)
    if verdict.outcome is Outcome.OK:
        return True
    message = f"{name} failed ({verdict.detail}): {verdict.last_line}".rstrip(": ")
    await tools.recorder.record(Noted(story_id=story_id, message=message))
    return False

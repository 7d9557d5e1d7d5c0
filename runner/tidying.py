"""What a killed run left lying about: finished worktrees that were not closed, and trash."""

from pathlib import Path

from isolation.closing import close_path, sweep_trash
from isolation.repository import offload
from runner.core.events import WorkspaceClosed
from runner.core.model import Status
from runner.tools import Tools


async def tidy(tools: Tools) -> None:
    """Close the worktrees of finished stories and empty the trash; what is of value stays."""
    await offload(sweep_trash, tools.worktree_root)
    if tools.sharing:
        return  # the tree is the user's
    for story in tools.recorder.snapshot.stories.values():
        if story.workspace is None or story.status not in {Status.DONE, Status.NO_WORK}:
            continue
        closing = await offload(close_path, tools.repository, Path(story.workspace), story.branch)
        await tools.recorder.record(
            WorkspaceClosed(story_id=story.id, removed=closing.removed, reason=closing.reason)
        )

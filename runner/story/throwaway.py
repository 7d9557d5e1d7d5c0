"""A worktree for questions about a commit, at a path of the run; it is gone when its block is left."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from isolation.model import Workspace
from isolation.paths import worktree_path
from isolation.worktree.throwaway import open_throwaway
from runner.core.model import StoryId
from runner.story.context.context import RunContext


@asynccontextmanager
async def throwaway_of(
    run: RunContext, name: StoryId, commit: str, *, ports: int
) -> AsyncIterator[Workspace]:
    """Check a commit out, prepared and guarded like a story's worktree; no story can have its name."""
    async with open_throwaway(
        run.repository,
        run_id=run.log.snapshot.run_id,
        path=worktree_path(run.worktree_root, name),
        commit=commit,
        limiter=run.populate,
        symlink_directories=run.settings.symlink_directories,
        mounted=run.write_guard.own_path,
    ) as (workspace, _):
        with run.ports.lent(workspace.path, ports):
            yield workspace

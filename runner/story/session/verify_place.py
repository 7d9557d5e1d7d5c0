"""Where verify commands run, so that they judge what is committed: see the setting `verify-in`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import trio
from msgspec import Struct
from trio import to_thread

from isolation.claims import globs as claims
from isolation.git.commits import named
from isolation.model import Workspace
from isolation.paths import folds_case
from isolation.worktree.aside import Aside, put_back, set_aside
from runner.core.events.events import Noted
from runner.story.context.context import StoryContext

_GRACE = 60.0


class VerifyPlace(Struct, frozen=True, kw_only=True):
    """The tree that verify commands find; `without` is what the story's worktree has and the tree lacks."""

    workspace: Workspace
    without: tuple[str, ...] = ()


@asynccontextmanager
async def verify_place(context: StoryContext, workspace: Workspace) -> AsyncIterator[VerifyPlace]:
    """Have the commit of a worktree to itself while its verify commands run; a shared tree stays as it is."""
    if context.run.shared_tree is not None:
        yield VerifyPlace(workspace=workspace)
        return
    try:
        found = await to_thread.run_sync(_set_aside, context, workspace)
        if found.stuck:
            words = f"verify ran with files that no commit holds, but that cannot move: {named(found.stuck)}"
            context.log.defer(Noted(story_id=context.story.id, message=words))
        yield VerifyPlace(workspace=workspace, without=found.names)
    finally:
        with trio.move_on_after(_GRACE, shield=True):
            await bring_back(context, workspace)


async def bring_back(context: StoryContext, workspace: Workspace) -> None:
    """Move back what is out of the way of verify commands, or was when a run was killed."""
    left = await to_thread.run_sync(put_back, workspace.path)
    if left:
        words = f"what was out of the way of verify could not be moved back: {named(left)}"
        context.log.defer(Noted(story_id=context.story.id, message=words))


def _set_aside(context: StoryContext, workspace: Workspace) -> Aside:
    settings, view = context.settings, context.run.write_guard.view
    lent = view.lent if view is not None else ()
    return set_aside(
        context.repository,
        workspace.path,
        shared=(*settings.symlink_directories, *lent),
        # Most worktrees hold nothing that is uncommitted, so the globs are compiled when one does.
        stays=lambda path: _kept(settings.verify_keeps, folds_case(context.repository.top)).owns(path),
    )


@cache
def _kept(globs: tuple[str, ...], folding: bool) -> claims.Claim:  # noqa: FBT001  a key of the cache
    return claims.compile(globs, folding=folding)

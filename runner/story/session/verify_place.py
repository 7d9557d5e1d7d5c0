"""Where verify commands run, so that they judge what is committed: see the setting `verify-in`."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import TypeVar

import trio
from msgspec import Struct
from msgspec.structs import replace
from trio import to_thread

from isolation.claims import globs as claims
from isolation.git.commits import named
from isolation.model import Workspace
from isolation.paths import folds_case
from isolation.worktree.aside import Aside, made_here, put_back, remember_left, set_aside
from runner.core.events.events import Noted
from runner.core.model import StoryId
from runner.story.context.context import StoryContext
from runner.story.session.hooks import BRINGING, run_aside
from runner.story.throwaway import throwaway_of

T = TypeVar("T")
_GRACE = 60.0


class VerifyPlace(Struct, frozen=True, kw_only=True):
    """The tree that verify commands find, and how many of them have passed there before.

    `without` is what sessions made in the story's worktree and the tree lacks. With a `flaw` the tree cannot
    be used.
    """

    workspace: Workspace
    passed: int = 0
    without: tuple[str, ...] = ()
    flaw: str = ""


@asynccontextmanager
async def verify_place(context: StoryContext, workspace: Workspace) -> AsyncIterator[VerifyPlace]:
    """Have the commit of a worktree to itself while its verify commands run; a shared tree stays as it is."""
    passed = context.now.progress.verified
    if context.run.shared_tree is not None:
        yield VerifyPlace(workspace=workspace, passed=passed)
        return
    if context.settings.verify_in == "clean":
        async with _clean_place(context, workspace) as place:
            yield place
        return
    found = Aside()
    try:
        found = await _off_the_loop(context, workspace, set_aside)
        if found.stuck:
            words = f"verify ran with files that no commit holds, but that cannot move: {named(found.stuck)}"
            context.log.defer(Noted(story_id=context.story.id, message=words))
        yield VerifyPlace(workspace=workspace, passed=passed, without=found.by_sessions)
    finally:
        with trio.move_on_after(_GRACE, shield=True):
            await bring_back(context, workspace)
            if context.now.progress.verified < len(context.verify):  # another attempt may follow
                await _off_the_loop(context, workspace, partial(remember_left, found=found))


@asynccontextmanager
async def _clean_place(context: StoryContext, workspace: Workspace) -> AsyncIterator[VerifyPlace]:
    """Check the commit out elsewhere, prepared like a new worktree; all commands run, since it is new."""
    settings, place = context.settings, StoryId(f"_verify-{context.story.id}")
    commit = context.now.workspace.commit or workspace.head
    async with throwaway_of(context.run, place, commit, ports=context.ports) as made:
        clean = replace(made, base=workspace.base)
        without = await _off_the_loop(context, workspace, made_here)
        for name in sorted(BRINGING):
            command: str = getattr(settings.hooks, name)
            if command and await run_aside(f"hook {name}", command, context, clean):
                flaw = f"hook {name} failed in a clean checkout of its commit"
                yield VerifyPlace(workspace=clean, without=without, flaw=flaw)
                return
        yield VerifyPlace(workspace=clean, without=without)


async def bring_back(context: StoryContext, workspace: Workspace) -> None:
    """Move back what is out of the way of verify commands, or was when a run was killed."""
    left = await to_thread.run_sync(put_back, workspace.path)
    if left:
        words = f"what was out of the way of verify could not be moved back: {named(left)}"
        context.log.defer(Noted(story_id=context.story.id, message=words))


async def _off_the_loop(context: StoryContext, workspace: Workspace, act: Callable[..., T]) -> T:
    """Look in a thread at what sessions made in a worktree and no commit holds."""
    settings, view = context.settings, context.run.write_guard.view
    shared = (*settings.symlink_directories, *(view.lent if view is not None else ()))

    def stays(path: str) -> bool:
        # Most worktrees hold nothing that is uncommitted, so the globs are compiled when one does.
        return _kept(settings.verify_keeps, folds_case(context.repository.top)).owns(path)

    return await to_thread.run_sync(
        partial(act, shared=shared, stays=stays), context.repository, workspace.path
    )


@cache
def _kept(globs: tuple[str, ...], folding: bool) -> claims.Claim:  # noqa: FBT001  a key of the cache
    return claims.compile(globs, folding=folding)

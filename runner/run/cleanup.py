"""What a killed run left behind: finished worktrees that were not closed, checkouts of commits, and trash."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import trio
from trio import to_thread

from isolation.errors import IsolationError
from isolation.files.deletion import delete_tree
from isolation.git.repository import Repository
from isolation.patterns import pattern
from isolation.worktree.removal import close_path, has_trash, sweep_trash, waiting_trash
from isolation.worktree.throwaway import clear_leftovers
from runner.core.base.check import BASE
from runner.core.events.events import WorkspaceClosed
from runner.core.model import Status
from runner.story.context.context import RunContext

_PLACES = pattern(rf"{BASE}|_(hidden|review|verify)-.+")
"""Where a run checks commits out for questions about them; no story can be called that."""
PATIENCE_SECONDS = 2.0
PAUSE_SECONDS = 1.0
BRIEF_SECONDS = 5.0


async def sweep(root: Path, say: Callable[[str], None]) -> None:
    """Empty the trash; if that takes long, say what the wait is for."""

    async def explain() -> None:
        await trio.sleep(PATIENCE_SECONDS)
        say("deleting the worktrees of finished stories; the run waits for the disk")

    if not has_trash(root):
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(explain)
        await to_thread.run_sync(sweep_trash, root)
        nursery.cancel_scope.cancel()


async def keep_sweeping(repository: Repository, root: Path) -> None:
    """Delete trash a tree at a time until cancelled, also what killed processes have left."""
    while True:
        await _empty(repository, root)
        await trio.sleep(PAUSE_SECONDS)


async def sweep_briefly(repository: Repository, root: Path) -> None:
    """Empty the trash as far as a short time allows; the next command that sweeps deletes the rest."""
    with trio.move_on_after(BRIEF_SECONDS):
        await _empty(repository, root)
        await to_thread.run_sync(sweep_trash, root)


async def _empty(repository: Repository, root: Path) -> None:
    for tree in await to_thread.run_sync(waiting_trash, repository, root):
        await to_thread.run_sync(_delete, tree)


def _delete(tree: Path) -> None:
    with suppress(OSError):  # another process deletes it, too
        delete_tree(tree)


async def tidy(context: RunContext, say: Callable[[str], None]) -> None:
    """Close the worktrees of finished stories and empty the trash; anything with unsaved work stays."""
    for here in context.everywhere:
        # Not only before the next use of such a place: git complains of one that was cut off in its making.
        with suppress(IsolationError, OSError):  # what is in the way there is named when the place is used
            await to_thread.run_sync(clear_leftovers, here.repository, here.worktree_root, _PLACES)
        await sweep(here.worktree_root, say)
    if context.shared_tree:
        return  # the tree is the user's
    for story in context.log.snapshot.stories.values():
        if story.workspace.path is None or story.status not in {Status.DONE, Status.NO_WORK}:
            continue
        closing = await to_thread.run_sync(
            close_path, context.at(story.repo).repository, Path(story.workspace.path), story.workspace.branch
        )
        await context.log.record(
            WorkspaceClosed(story_id=story.id, removed=closing.removed, reason=closing.reason)
        )

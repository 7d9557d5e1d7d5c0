"""The worktrees of a run that are ready for stories: spares, or small trees that go from story to story."""

import os
from collections.abc import Collection
from pathlib import Path

import trio

from isolation.git.repository import Repository
from isolation.keeper.client import Keeper
from isolation.worktree.pool.pool import Pool, size_of
from isolation.worktree.pool.turnover import Turnover, can_turn_over
from runner.core.model import RunId, Status
from runner.core.settings import Settings
from runner.story.context.context import RunContext

COUNT_SECONDS = 0.5
"""How often it is counted how many stories are still to get a tree."""


def make_pool(
    repository: Repository,
    root: Path,
    run_id: RunId,
    settings: Settings,
    *,
    guarded: bool,
    wanted: bool,
    keeper: Keeper | None = None,
) -> Pool:
    """Return the pool of a run in a repository; one that is not `wanted` only removes what was left."""

    def own() -> Collection[int]:
        return {os.getpid(), *(keeper.pids if keeper else ())}

    size = size_of(repository, settings.pool, settings.max_stories) if wanted else 0
    small = wanted and not size and settings.pool is None and guarded and can_turn_over(repository)
    return Pool(
        repository=repository,
        root=root,
        run_id=run_id,
        size=size,
        guarded=guarded,
        trims=settings.pool is not None and wanted,
        turnover=Turnover(repository, run_id, batch=settings.max_stories, own=own) if small else None,
    )


async def count_waiting(context: RunContext, turnover: Turnover) -> None:
    """Say, until cancelled, how many stories are still to get a tree."""
    while True:
        states = context.log.snapshot.stories.values()
        turnover.expect(
            sum(
                story.status in {Status.WAITING, Status.QUEUED}
                and story.repo == context.repo
                and story.workspace.path is None
                for story in states
            )
        )
        await trio.sleep(COUNT_SECONDS)

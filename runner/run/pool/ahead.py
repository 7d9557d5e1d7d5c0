"""What a run can do for its first worktrees while the rest of the program still loads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from isolation.model import IsolationMode
from isolation.paths import worktree_path
from isolation.worktree.pool.ahead import look_ahead
from isolation.worktree.pool.early import check_out_early, drop_early
from isolation.worktree.pool.pool import size_of
from runner.core.model import Story
from runner.plan.plan import Plan
from runner.plan.stories.sparse import sparse_folders
from runner.run.pool.overlays import AUTO, OVERLAY


@contextmanager
def worktrees_begun(plan: Plan) -> Iterator[None]:
    """Begin to look at the spares that the first stories of a run will claim, or to make their trees.

    What the run has not come to use is removed at the end of the block.
    """
    settings = plan.settings
    guarded = settings.bg_isolation == IsolationMode.WORKTREE and settings.guard
    elsewhere = settings.cluster or settings.workspace in {OVERLAY, AUTO}
    if not guarded or settings.pool == 0 or elsewhere:
        yield
        return
    look_ahead(plan.repository, plan.base, min(settings.max_stories, len(plan.own)))
    large = size_of(plan.repository, settings.pool, settings.max_stories) > 0
    if large and not plan.several and any(_starts_fresh(plan, story) for story in plan.own):
        check_out_early(plan.repository, plan.worktree_root, plan.base)
    try:
        yield
    finally:
        drop_early(plan.repository.common_dir)


def _starts_fresh(plan: Plan, story: Story) -> bool:
    """Whether a story gets a new worktree with all files of the base at once."""
    return (
        story.id not in plan.finished
        and story.id not in plan.fresh
        and not story.depends_on
        and sparse_folders(story, plan.settings) is None
        and not os.path.lexists(worktree_path(plan.worktree_root, story.id))
    )

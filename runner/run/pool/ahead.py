"""What a run can do for its first worktrees while the rest of the program still loads."""

from isolation.model import IsolationMode
from isolation.worktree.pool.ahead import look_ahead
from runner.plan.plan import Plan
from runner.run.pool.overlays import AUTO, OVERLAY


def look_at_spares(plan: Plan) -> None:
    """Begin to look at the spares that the first stories of a run will claim."""
    settings = plan.settings
    guarded = settings.bg_isolation == IsolationMode.WORKTREE and settings.guard
    elsewhere = settings.cluster or settings.workspace in {OVERLAY, AUTO}
    if guarded and settings.pool != 0 and not elsewhere:
        look_ahead(plan.repository, plan.base, min(settings.max_stories, len(plan.own)))

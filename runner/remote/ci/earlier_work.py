"""What earlier runs have left in a clone that CI jobs use again: set aside, so that a story can run.

Without that, the second night would find the branches of the first one, on a commit that the other jobs do
not have, and a folder whose clone was replaced would keep its story from running at all.
"""

from collections.abc import Mapping

from isolation.files.lease import holder_is_alive
from isolation.git.repository import Repository
from isolation.paths import worktree_path
from isolation.worktree.earlier import set_branch_aside, set_orphan_aside
from runner.core.text.names import branch_of
from runner.plan.plan import Plan


def make_room(plan: Plan) -> list[str]:
    """Set aside what a job would otherwise continue, although it does not start from the job's base commit.

    Returns messages.
    """
    if holder_is_alive(plan.repository.common_dir):
        return []  # a run is using all of this, and the job will stop because of it
    said = set_orphans_aside(plan)
    for story in plan.stories:
        branch = branch_of(story.id)
        tip = plan.repository.branch_tip(branch)
        if tip is None or story.id in plan.finished or plan.repository.is_ancestor(plan.base, tip):
            continue
        path = worktree_path(plan.worktree_root, story.id)
        # A branch without commits of its own, and without a worktree, just moves to the new base.
        if path.exists() or not plan.repository.is_ancestor(tip, plan.base):
            new = set_branch_aside(plan.repository, branch, path)
            said.append(f"branch {branch} is from an earlier run on another base; it is {new} now")
    return said


def set_orphans_aside(plan: Plan) -> list[str]:
    """Move worktrees of a clone that is gone, where stories of this plan would work; return messages."""
    said = []
    for story in plan.own:
        path = worktree_path(plan.worktree_root, story.id)
        if story.id not in plan.finished and path.is_dir():
            moved = set_orphan_aside(plan.repository, path)
            if moved is not None:
                said.append(f"{path} was the worktree of a clone that is gone; it is at {moved} now")
    return said


def set_older_aside(repository: Repository, base: str, tips: Mapping[str, str]) -> list[str]:
    """Rename branches here that do not start from the base of what replaces them; return messages."""
    said = []
    for branch, tip in tips.items():
        here = repository.branch_tip(branch)
        if here in {None, tip} or repository.is_ancestor(base, here):
            continue
        if not repository.is_ancestor(here, base):
            new = set_branch_aside(repository, branch)
            said.append(f"branch {branch} was from an earlier run on another base; it is {new} now")
    return said

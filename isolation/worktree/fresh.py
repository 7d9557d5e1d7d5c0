"""A story that starts over: its branch and its worktree go; all that they held is kept under a ref."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from isolation.errors import WorkspaceError
from isolation.git.commits import checkpoint
from isolation.git.landing.old_tips import place_for
from isolation.git.landing.target import checkouts_of
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository
from isolation.worktree.removal import close_path

T = TypeVar("T", bound=str)


def start_over(repository: Repository, branches: Mapping[T, tuple[str, Path]]) -> dict[T, str]:
    """Free the branches of stories, by id with branch and worktree; return the refs of their old tips.

    What is not committed in a worktree is committed first. If git cannot do that, or something else would be
    lost with the worktree, it stays. Blocking.
    """
    there = {
        story_id: (branch, path, tip)
        for story_id, (branch, path) in branches.items()
        if (tip := repository.branch_tip(branch)) is not None
    }
    for story_id, (branch, path, _) in there.items():
        for checkout in checkouts_of(repository, branch):
            if checkout != path:
                raise _refused(story_id, f"{branch} is checked out at {checkout}")
    return {
        story_id: _freed(repository, story_id, branch, path, tip)
        for story_id, (branch, path, tip) in there.items()
    }


def _refused(story_id: str, reason: str) -> WorkspaceError:
    hint = "keep what you need and clean it up there, then run again"
    return WorkspaceError(f"story {story_id} cannot start over: {reason}", hint=hint)


def _freed(repository: Repository, story_id: str, branch: str, path: Path, tip: str) -> str:
    if path.exists():
        message = f"What was not committed when {story_id} started over\n"
        tip = checkpoint(repository, path, branch, message, time.time(), base=tip, since=tip).tip
        closing = close_path(repository, path, branch)
        if not closing.removed:
            raise _refused(story_id, f"{path}: {closing.reason}")
    kept = place_for(repository, story_id, tip)
    # All or nothing, and only while the branch is where it was.
    lines = ("start", f"update {kept} {tip}", f"delete refs/heads/{branch} {tip}", "prepare", "commit")
    with metadata_lock(repository.common_dir):
        repository.run(
            *("update-ref", "-m", f"autopilot-multi: {story_id} starts over", "--stdin"),
            stdin="".join(f"{line}\n" for line in lines).encode(),
        )
    return kept

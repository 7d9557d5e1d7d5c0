"""A story that starts over: its branch and its worktree go; all that they held is kept under a ref.

So it is between two candidates of a story, too; these are kept as branches, and one may return.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from isolation.errors import WorkspaceError
from isolation.git.clones.uncommitted import ref_of, uncommitted_of
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


def set_aside(repository: Repository, story_id: str, branch: str, path: Path, *, kept: str) -> None:
    """Free a story's branch and its worktree, and keep what they held as branch `kept`. Blocking.

    Repeating it after a crash finds it done; by then the branch may be that of the best candidate.
    """
    tip = repository.branch_tip(branch)
    if tip is not None and repository.branch_tip(kept) is None:
        _freed(repository, story_id, branch, path, tip, kept=f"refs/heads/{kept}")


def bring_forward(repository: Repository, branch: str, *, kept: str, commit: str) -> None:
    """Make what was set aside as branch `kept` the story's branch again. Blocking; a repeat finds it done."""
    if repository.branch_tip(branch) == commit and repository.branch_tip(kept) is None:
        return
    lines = (
        f"create refs/heads/{branch} {commit}",
        # What was not committed when it was set aside stays there.
        *([f"delete refs/heads/{kept} {commit}"] if repository.branch_tip(kept) == commit else []),
    )
    _update(repository, "autopilot-multi: the best candidate", lines)


def _refused(story_id: str, reason: str) -> WorkspaceError:
    hint = "keep what you need and clean it up there, then run again"
    return WorkspaceError(f"story {story_id} cannot start over: {reason}", hint=hint)


def _freed(
    repository: Repository, story_id: str, branch: str, path: Path, tip: str, *, kept: str = ""
) -> str:
    if path.exists():
        message = f"What was not committed when {story_id} started over\n"
        tip = checkpoint(repository, path, branch, message, time.time(), base=tip, since=tip).tip
        closing = close_path(repository, path, branch)
        if not closing.removed:
            raise _refused(story_id, f"{path}: {closing.reason}")
    left = uncommitted_of(repository, story_id)  # from a worktree on another machine
    held = left if left and repository.is_ancestor(tip, left) else tip
    kept = kept or place_for(repository, story_id, held)
    # Only while the branch is where it was.
    lines = [f"update {kept} {held}", f"delete refs/heads/{branch} {tip}"]
    if held != tip:
        lines.append(f"delete {ref_of(story_id)} {left}")
    _update(repository, f"autopilot-multi: {story_id} starts over", lines)
    return kept


def _update(repository: Repository, why: str, lines: Sequence[str]) -> None:
    """Change references, all or none."""
    whole = "".join(f"{line}\n" for line in ("start", *lines, "prepare", "commit"))
    with metadata_lock(repository.common_dir):
        repository.run("update-ref", "-m", why, "--stdin", stdin=whole.encode())

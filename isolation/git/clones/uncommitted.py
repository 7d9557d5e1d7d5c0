"""What a story left uncommitted on another machine: a commit on top of its branch, which no branch has.

A reference keeps it until the story continues. Then its changes are put back into the worktree, uncommitted
as they were.
"""

import time
from pathlib import Path

from isolation.errors import IsolationError
from isolation.git.checkout import read_status
from isolation.git.commits import commit_tree
from isolation.git.direct.refs import NO_REF, read_ref
from isolation.git.private_index import fresh_index
from isolation.git.repository import Repository
from isolation.paths import own_git_dir

UNCOMMITTED = "refs/autopilot/uncommitted"
_REPLACED = "refs/autopilot/replaced/uncommitted"
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")


def ref_of(story_id: str) -> str:
    """Return the name under which what a story left is kept."""
    return f"{UNCOMMITTED}/{story_id}"


def uncommitted_of(repository: Repository, story_id: str) -> str:
    """Return the commit of what a story left uncommitted; empty if nothing is kept."""
    ref = ref_of(story_id)
    found = read_ref(repository.common_dir, ref)
    if found is None:
        found = repository.run("rev-parse", "--verify", "--quiet", ref, check=False).stdout.strip()
    return "" if found == NO_REF else found


def commit_uncommitted(repository: Repository, worktree: Path, story_id: str) -> str:
    """Return a commit of what a worktree has beyond its HEAD; empty if that is nothing. Blocks.

    Ignored files stay out. The worktree, its index and its branch stay as they are; no session may be alive
    there.
    """
    git_dir, status = own_git_dir(worktree), read_status(repository, worktree)
    if git_dir is None or status.head is None or not status.dirty:
        return ""
    index = git_dir / "autopilot-uncommitted.index"
    env = fresh_index(index)
    try:
        # Not a copy of the worktree's index: a session may have hidden changes in it, or left a conflict.
        repository.run("read-tree", status.head, cwd=worktree, env=env)
        repository.run("-c", "advice.addEmbeddedRepo=false", "add", "--all", cwd=worktree, env=env)
        tree = repository.run("write-tree", cwd=worktree, env=env).stdout.strip()
    finally:
        for left in (index, index.with_name(f"{index.name}.lock")):
            left.unlink(missing_ok=True)
    message = f"What {story_id} left uncommitted\n"
    return commit_tree(repository, tree, (status.head,), message, time.time())


def keep_uncommitted(repository: Repository, story_id: str, commit: str) -> str:
    """Keep what a story left; return the name of its reference. What had that name before is kept, too."""
    before, ref = uncommitted_of(repository, story_id), ref_of(story_id)
    if before and before != commit:
        repository.run("update-ref", f"{_REPLACED}/{story_id}/{before[:12]}", before)
    repository.run("update-ref", ref, commit)
    return ref


def forget_uncommitted(repository: Repository, story_id: str, commit: str) -> None:
    """Forget what a story left, since a worktree or a commit of its branch has it; newer work stays."""
    repository.run("update-ref", "-d", ref_of(story_id), commit, check=False)


def put_back(repository: Repository, worktree: Path, story_id: str) -> str:
    """Put what a story left back into the worktree in which it continues; return words about it. Blocks.

    Empty if nothing is kept. Where it does not fit, it stays under its reference.
    """
    commit = uncommitted_of(repository, story_id)
    if not commit:
        return ""
    stays = f"what an earlier session left uncommitted is not in its worktree, but kept as {ref_of(story_id)}"
    try:
        if read_status(repository, worktree).dirty:
            return f"{stays}: there are other changes"
        if not _applied(repository, worktree, commit):
            return f"{stays}: it does not fit what is on the branch now"
    except IsolationError as error:
        return f"{stays}: {error.message}"
    forget_uncommitted(repository, story_id, commit)
    return "continues with what an earlier session left uncommitted"


def _applied(repository: Repository, worktree: Path, commit: str) -> bool:
    """Make the changes of a commit in a clean worktree, staging none; false, and none, if any conflicts."""
    picked = repository.run(*_NO_HOOKS, "cherry-pick", "--no-commit", commit, cwd=worktree, check=False)
    if picked.returncode != 0:
        repository.run(*_NO_HOOKS, "reset", "--quiet", "--merge", cwd=worktree)
        return False
    repository.run(*_NO_HOOKS, "reset", "--quiet", cwd=worktree)
    return True

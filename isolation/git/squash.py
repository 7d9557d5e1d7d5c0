"""The commits of a branch as one commit with the same files; the original tip is kept under a ref of its own.

The same branch gives the same commit: what a crash interrupted is simply repeated.
"""

from isolation.errors import RepositoryError
from isolation.git.commits import commit_tree, committed_at
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository

KEPT = "refs/autopilot/squashed"


def messages(repository: Repository, base: str, tip: str) -> tuple[str, ...]:
    """Return the messages of a branch's commits, oldest first."""
    log = repository.run("log", "--reverse", "-z", "--format=%B", f"{base}..{tip}", "--")
    return tuple(message.strip() for message in log.stdout.split("\0") if message.strip())


def squash(
    repository: Repository, branch: str, message: str, *, base: str, tip: str, keep_as: str
) -> str | None:
    """Replace what a branch has since `base` by one commit, and return it; None if it must stay as it is.

    That is so if the branch has moved, or contains merges: one commit would lose where they come from. The
    original tip stays reachable as `KEPT/keep_as`.
    """
    if int(repository.run("rev-list", "--count", "--merges", f"{base}..{tip}", "--").stdout):
        return None
    (tree,) = repository.trees((tip,))
    made = commit_tree(repository, tree, (base,), message, committed_at(repository, tip))
    if repository.trees((made,)) != (tree,):
        raise RepositoryError(f"the commit {made[:12]} does not hold the files of {tip[:12]}")
    with metadata_lock(repository.common_dir):
        now = repository.branch_tip(branch)
        if now == made:
            return made  # a run that was interrupted got this far
        if now != tip:
            return None
        repository.run("update-ref", "-m", "autopilot-multi: before squash", f"{KEPT}/{keep_as}", tip)
        # Naming the old tip makes it a compare-and-swap.
        repository.run("update-ref", "-m", "autopilot-multi: squash", f"refs/heads/{branch}", made, tip)
    return made

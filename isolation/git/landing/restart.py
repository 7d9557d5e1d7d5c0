"""A branch that starts again on a newer tip: one commit joins both, and what the branch had is kept."""

from pathlib import Path

from isolation.errors import WorkspaceError
from isolation.git.checkout import read_status
from isolation.git.commits import commit_tree, committed_at, named, retried
from isolation.git.landing.merges import OLD, merged_files
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository


def restarted(
    repository: Repository, base: str, old: str, message: str, *, fork: str = "", fresh: bool = False
) -> tuple[str, tuple[str, ...]]:
    """Return the commit that joins a branch with a newer tip, and the paths that are in conflict there.

    Nothing moves. With `fresh` it has the files of the tip alone. The same commits give the same commit.
    """
    if repository.is_ancestor(base, old) and not fresh:
        return old, ()
    date = float(max(committed_at(repository, commit) for commit in (base, old)))
    conflicts: tuple[str, ...] = ()
    if fresh:
        (tree,) = repository.trees((base,))
    else:
        tree, conflicts = merged_files(repository, base, old, date, base=fork)
    return commit_tree(repository, tree, (base, old), message, date), conflicts


def move_to(repository: Repository, path: Path, branch: str, *, old: str, commit: str, name: str) -> None:
    """Move a branch and its worktree to the commit that `restarted` made; once it has moved, it stays.

    The old tip is kept as `OLD/name`. Git refuses if that would touch uncommitted work.
    """
    tip = repository.branch_tip(branch)
    if tip is not None and repository.is_ancestor(commit, tip):
        return
    if tip != old:
        raise WorkspaceError(
            f"branch {branch} moved from {old[:10]} to {(tip or 'nothing')[:10]} before it could start again",
            hint="what it has now can be landed: autopilot-multi land",
        )
    repository.run("update-ref", "-m", "autopilot-multi: before another try", f"{OLD}/{name}", old)
    if retried(repository, ("reset", "--keep", "--quiet", commit), path).returncode != 0:
        raise WorkspaceError(
            f"{path} has changes in the way: {named(read_status(repository, path).dirty)}",
            hint="commit, stash or remove them there, then `autopilot-multi resume`",
        )


def as_one_merge(
    repository: Repository,
    branch: str,
    message: str,
    *,
    parents: tuple[str, str],
    start: str,
    tip: str,
    keep_as: str,
) -> str | None:
    """Replace the joining commit `start` and what follows it by one merge of `parents` with the same files.

    So no commit with conflict markers stays in the history. None if the branch must stay as it is: `start`
    is no such commit, the branch has moved, or it holds further merges. What it had is kept as `OLD/keep_as`.
    """
    if tuple(repository.run("rev-parse", f"{start}^@").stdout.split()) != parents:
        return None
    if int(repository.run("rev-list", "--count", "--merges", f"{start}..{tip}", "--").stdout):
        return None
    (tree,) = repository.trees((tip,))
    made = commit_tree(repository, tree, parents, message, committed_at(repository, tip))
    with metadata_lock(repository.common_dir):
        if repository.branch_tip(branch) != tip:
            return None
        repository.run("update-ref", "-m", "autopilot-multi: before one merge", f"{OLD}/{keep_as}", tip)
        # Naming the old tip makes it a compare-and-swap.
        repository.run("update-ref", "-m", "autopilot-multi: one merge", f"refs/heads/{branch}", made, tip)
    return made

"""Commits that bring branches together for a landing, made without touching any checkout."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from isolation.errors import GitCommandError
from isolation.git.commits import commit_tree
from isolation.git.forecast.merge_tree import merge_tree
from isolation.git.repository import Repository

LANDED = "refs/autopilot/landed"
"""Where the tip that a target had before a landing is kept, under the id of the landing."""

UNDONE = "refs/autopilot/undone"
"""Where the tip that a target had before a landing was undone is kept."""


OLD = "refs/autopilot/old"
"""Where the tip that a story's branch had before it started again is kept."""


class Joined(Struct, frozen=True, kw_only=True):
    """A branch on top of a commit; without a `commit`, the paths in conflict or another obstacle.

    `empty` means that the branch changes nothing there.
    """

    commit: str = ""
    tree: str = ""
    conflicts: tuple[str, ...] = ()
    obstacle: str = ""
    empty: bool = False


def join(
    repository: Repository,
    onto: str,
    tip: str,
    message: str,
    date: float,
    *,
    base: str = "",
    single: bool = False,
    parent: str = "",
    sign: bool = False,
) -> Joined:
    """Merge a branch onto a commit. `single` makes one commit without the branch in its history.

    With a `base` the branch brings what it has changed since then, whatever else its history holds. The
    merge gets `parent` as its second parent, if that is another commit than the tip. With `sign` the user's
    git signs the commit.
    """
    try:
        tree, conflicts = merged_files(repository, onto, tip, date, base=base)
    except GitCommandError as error:
        return Joined(obstacle=error.message)
    if conflicts:
        return Joined(conflicts=conflicts)
    (before,) = repository.trees((onto,))
    parents = (onto,) if single else (onto, parent or tip)
    made = commit_tree(repository, tree, parents, message, date, sign=sign)
    return Joined(commit=made, tree=tree, empty=tree == before)


def merged_files(
    repository: Repository, onto: str, tip: str, date: float, *, base: str = ""
) -> tuple[str, tuple[str, ...]]:
    """Merge a branch onto a commit; return the tree, with markers where it conflicts, and these paths."""
    theirs, ours = (tip, onto) if not base else _replayed(repository, base, onto, tip, date)
    return merge_tree(repository, ours, theirs)


def revert(repository: Repository, tip: str, message: str, date: float, *, before: str, after: str) -> Joined:
    """Make a commit on `tip` that reverts what lies between two commits of its history."""
    try:
        theirs, ours = _replayed(repository, after, tip, before, date)
        tree, conflicts = merge_tree(repository, ours, theirs)
    except GitCommandError as error:
        return Joined(obstacle=error.message)
    if conflicts:
        return Joined(conflicts=conflicts)
    made = commit_tree(repository, tree, (tip,), message, date, sign=repository.signs_commits)
    return Joined(commit=made, tree=tree)


def with_trailers(repository: Repository, message: str, trailers: Mapping[str, str]) -> str:
    """Add trailers to a message as git does, below those that it has; the same one is not added twice."""
    added = [part for key, value in trailers.items() for part in ("--trailer", f"{key}: {value}")]
    # The user's configuration must not change what other programs look for.
    plain = ("-c", "trailer.separators=:", "-c", "trailer.where=end", "-c", "trailer.ifmissing=add")
    args = ("interpret-trailers", "--no-divider", "--if-exists", "addIfDifferent", *added)
    return repository.run(*plain, *args, stdin=message.encode(errors="surrogateescape")).stdout


def require_signing(repository: Repository, commit: str, date: float) -> None:
    """Raise if git is to sign commits and cannot; found out by a commit that nothing points to."""
    if repository.signs_commits:
        (tree,) = repository.trees((commit,))
        commit_tree(repository, tree, (commit,), "Try to sign", date, sign=True)


def _replayed(repository: Repository, base: str, ours: str, theirs: str, date: float) -> tuple[str, str]:
    """Return two commits with the files of `theirs` and `ours`, whose only common history is `base`.

    So git merges with this base; before version 2.40 it has no option for that.
    """
    trees = repository.trees((base, ours, theirs))
    root = commit_tree(repository, trees[0], (), "base", date)
    mine, other = (commit_tree(repository, tree, (root,), "side", date) for tree in trees[1:])
    return other, mine


def not_contained(repository: Repository, commits: Collection[str], target: str) -> frozenset[str]:
    """Return those of the commits that are not in the history of `target`."""
    wanted = sorted(set(commits))
    if not wanted:
        return frozenset()
    listed = repository.run("rev-list", *wanted, "--not", target, "--").stdout.split()
    return frozenset(wanted) & frozenset(listed)


def brought_paths(repository: Repository, target: str, tip: str) -> frozenset[str]:
    """Return the paths that a branch has changed since it left the history of `target`."""
    args = ("diff", "--name-only", "-z", "--no-renames", f"{target}...{tip}", "--")
    output = repository.run(*args, check=False)
    return frozenset(output.fields()) if output.returncode == 0 else frozenset()


def conflicting(repository: Repository, tip: str, others: Sequence[str]) -> tuple[str, ...]:
    """Return those of the branches that do not merge with one."""
    found = []
    for other in others:
        try:
            _, conflicts = merge_tree(repository, other, tip)
        except GitCommandError:
            continue
        found += [other] if conflicts else []
    return tuple(found)

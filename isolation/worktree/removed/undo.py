"""Brings removed worktrees back to where they were, on their branches, with the files that git ignores.

If the branch has moved since, the worktree is at the commit that it was at, on no branch: on the branch, git
would show the newer work as changes to be undone.
"""

import os
from pathlib import Path

from msgspec import Struct

from isolation.errors import IsolationError
from isolation.files.deletion import delete_tree
from isolation.files.disk import replace_file
from isolation.files.plain import read_plain
from isolation.git.checkout import admin_dir_of_missing
from isolation.git.metadata_lock import metadata_lock
from isolation.git.registrations import load_registrations, move_entry
from isolation.git.repository import Repository
from isolation.patterns import pattern
from isolation.worktree.removed.store import RemovedTree, load_removed

_ENTRY = pattern(r"\w[\w.-]*")
_LONGEST = 16 << 20
"""How long a log of a worktree's HEAD may be, in bytes."""


class Undone(Struct, frozen=True, kw_only=True):
    """A removed worktree: brought back, or why not. `entry` is the name of its part of the git directory."""

    path: Path
    branch: str | None
    restored: bool
    reason: str
    entry: str = ""


def restore_last(repository: Repository) -> tuple[Undone, ...]:
    """Bring back what the last run, or the last `gc`, has removed. Blocks."""
    found = load_removed(repository)
    return tuple(_restore(repository, tree) for tree in found if tree.record.batch == found[0].record.batch)


def _restore(repository: Repository, removed: RemovedTree) -> Undone:
    path, branch = Path(removed.record.path), removed.record.branch
    try:
        with metadata_lock(repository.common_dir):
            reason, entry = _restored(repository, removed, path, branch)
    except (IsolationError, OSError) as error:
        reason, entry = str(error), ""
    words = reason or (f"on {branch}" if branch else "on no branch")
    return Undone(path=path, branch=branch, restored=bool(entry), reason=words, entry=entry)


def _restored(
    repository: Repository, removed: RemovedTree, path: Path, branch: str | None
) -> tuple[str, str]:
    """Return what to say about a worktree, and the name of its entry if it is back."""
    if os.path.lexists(path):
        return "something else is there now", ""
    if not removed.tree.is_dir():
        return "it was deleted meanwhile", ""
    entry, note = admin_dir_of_missing(repository, path), ""
    if removed.entry.is_dir():
        if entry is not None:
            return "another worktree is registered there", ""
        head, note = _head(repository, removed, branch)
        if not head:
            return note, ""
        entry = _free_entry(repository, removed.tree, path.name)
        replace_file(removed.entry / "HEAD", os.fsencode(f"{head}\n"), durable=False)
        entry.parent.mkdir(exist_ok=True)
        move_entry(removed.entry, entry)
    if entry is None:  # otherwise a process was killed after the first rename
        return "its part of the git directory is gone", ""
    replace_file(removed.tree / ".git", os.fsencode(f"gitdir: {entry}\n"), durable=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    removed.tree.rename(path)
    delete_tree(removed.folder)
    return note, entry.name


def _head(repository: Repository, removed: RemovedTree, branch: str | None) -> tuple[str, str]:
    """Return the content of the worktree's HEAD; without one, why there can be none."""
    before = _text(removed.entry / "HEAD")
    index = {"GIT_INDEX_FILE": str(removed.entry / "index")}
    tree = repository.run("write-tree", env=index).stdout.strip()
    if branch is None or not before.startswith("ref:"):
        known = repository.run("cat-file", "-e", f"{before}^{{commit}}", check=False).returncode == 0
        return (before, "") if known else ("", f"its commit {before[:10]} is gone")
    elsewhere = [entry.path for entry in load_registrations(repository) if entry.branch == branch]
    if not elsewhere and _tree_of(repository, f"refs/heads/{branch}") == tree:
        return before, ""
    last = _text(removed.entry / "logs" / "HEAD").splitlines()[-1:]
    commit = last[0].split(" ")[1] if last else ""
    if not commit or _tree_of(repository, commit) != tree:
        return "", f"{branch} has moved since, and the commit that it was at is not known"
    why = f"{branch} is checked out at {elsewhere[0]}" if elsewhere else f"{branch} has moved since"
    return commit, f"on no branch, at {commit[:10]}: {why}"


def _tree_of(repository: Repository, commit: str) -> str:
    found = repository.run("rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}", check=False)
    return found.stdout.strip()


def _free_entry(repository: Repository, tree: Path, story: str) -> Path:
    """Return the place of its entry in the git directory, as before if that is free."""
    before = Path(_text(tree / ".git").removeprefix("gitdir:").strip()).name
    name = before if _ENTRY.fullmatch(before) else story
    worktrees = repository.common_dir / "worktrees"
    names = (name, *(f"{name}{number}" for number in range(1, 1000)))
    return next(worktrees / each for each in names if not os.path.lexists(worktrees / each))


def _text(path: Path) -> str:
    try:
        return os.fsdecode(read_plain(path, _LONGEST)).strip()
    except OSError:
        return ""

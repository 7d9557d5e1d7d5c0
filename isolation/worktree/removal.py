"""The end of a worktree: removed if nothing can be lost with it, otherwise kept with the reason.

A tree is never deleted in place: it is moved to the trash folder in one step, its registration is cleared,
and only then is it deleted, outside the lock. A crash at any point leaves a whole tree, or a registered path
without a tree, or trash; each is cleaned up later. Branches are never deleted here. The last worktrees of
stories are kept for a while instead, see `removed/`.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from isolation.errors import IsolationError, RepositoryError
from isolation.files.deletion import delete_tree
from isolation.files.lookups import is_there
from isolation.files.plain import read_plain
from isolation.git.checkout import CheckoutStatus, admin_dir, read_status, seen_status
from isolation.git.commit_flaws import has_plain_index
from isolation.git.commits import named, operation_in_progress
from isolation.git.contained.private_refs import log_of
from isolation.git.metadata_lock import metadata_lock
from isolation.git.registrations import clear_missing, entry_run, removed_entries
from isolation.git.repository import Repository, offload
from isolation.guard.submodules import remove_links
from isolation.model import Closing, Workspace
from isolation.paths import git_place
from isolation.worktree.layers.lifting import lift, put_down
from isolation.worktree.layers.records import drop_layer, is_hidden, layer_at
from isolation.worktree.removed.store import (
    Removed,
    entry_in,
    new_folder,
    record,
    thin_removed,
    tree_in,
)

TRASH = ".trash"
HIDDEN = "its files are a layer over a checkout, which this process does not see"
_GITLINK = "160000"

Reuse = Callable[[Path, str, bytes], bool]
"""Takes over a tree in which nothing would be lost, or not. It gets the path, the commit there, and the index
that the tree was just compared with, empty if git was asked."""


async def close(
    repository: Repository,
    workspace: Workspace,
    *,
    sweep: bool = True,
    reuse: Reuse | None = None,
) -> Closing:
    """Remove a finished story's worktree, unless something in it exists nowhere else.

    Without `sweep` the tree is only moved to the trash, which costs next to nothing. `reuse` may take it over
    instead.
    """
    end = partial(close_path, sweep=sweep, reuse=reuse, index=workspace.index, head=workspace.head)
    return await offload(end, repository, workspace.path, workspace.branch)


def close_path(
    repository: Repository,
    path: Path,
    branch: str | None,
    *,
    sweep: bool = True,
    reuse: Reuse | None = None,
    batch: str = "",
    head: str = "",
    index: tuple[int, ...] = (),
) -> Closing:
    """Do the same, blocking; without a branch, a branch or tag must contain its HEAD.

    Worktrees with the same `batch` are brought back together; without one, those of a run. `index` is what
    the file system said of git's index when it had the files of `head`.
    """
    try:
        if is_hidden(repository.common_dir, path):
            return Closing(removed=False, reason=HIDDEN)
        if not path.exists():
            with metadata_lock(repository.common_dir):
                clear_missing(repository, path)
            return Closing(removed=True, reason="its folder was already gone")
        with repository.visiting(path):
            status = seen_status(repository, path, branch, head, index) if branch else None
            if status is not None and status.dirty:
                status = None  # for git to judge
            reason = reason_to_keep(repository, path, branch, status)
            tip = None
            if reuse and not reason:
                tip = status.head if status else repository.head(path)
        if not reason and reuse and tip and reuse(path, tip, status.compared if status else b""):
            return Closing(removed=True, reason="", reused=True)
        if not reason:
            reason = _set_away(repository, path, branch, batch, sweep=sweep)
    except IsolationError as error:
        reason = error.message
    return Closing(removed=not reason, reason=reason)


def reason_to_keep(
    repository: Repository, path: Path, branch: str | None, status: CheckoutStatus | None = None
) -> str:
    """Return what would be lost with a worktree, or why that is unknown; empty if nothing would be.

    Git is asked for its status, unless that is known.
    """
    git_dir = admin_dir(repository, path, status.git_dir if status else None)
    if git_dir is None:
        return "it is not a worktree of this repository"
    if operation := operation_in_progress(git_dir):
        return f"it is in the middle of {operation}"
    if is_there(f"{git_dir}/index.lock"):
        return f"a git command is running in it, or was killed there: {git_dir / 'index.lock'} exists"
    status = status or read_status(repository, path)
    return (
        _unreachable(repository, status, branch)
        or _uncommitted(status)
        # An index that was compared is plain, so nothing hides behind it.
        or ("" if status.compared else _invisible(repository, path, status.head))
        or _private(repository, path, git_dir, branch)
    )


def _set_away(repository: Repository, path: Path, branch: str | None, batch: str, *, sweep: bool) -> str:
    """Remove a worktree so that it can be brought back, if possible; return why if it had to stay."""
    folder = new_folder(repository, path)
    if folder is None:
        return discard(repository, path, sweep=sweep)
    at = time.time()
    reason = discard(repository, path, sweep=sweep, into=folder)
    if reason:
        folder.rmdir()
        return reason
    known = batch or entry_run(entry_in(folder)) or path.name
    record(folder, Removed(path=str(path), branch=branch, batch=known, at=at))
    if sweep:
        thin_removed(repository)
    return ""


def discard(repository: Repository, path: Path, *, sweep: bool = True, into: Path | None = None) -> str:
    """Remove a worktree without checking its content; return why if it had to stay.

    All of it goes `into` a folder if there is one, and is not deleted.
    """
    trash = path.parent / TRASH
    aside = tree_in(into) if into else trash / f"{path.name}-{secrets.token_hex(6)}"
    layer = layer_at(repository.common_dir, path)
    # Rename and clearing are one step for other runs, which would else see a registered path without a tree.
    with metadata_lock(repository.common_dir):
        try:
            if trash.is_symlink():  # the deletion would follow it to a folder that is not ours
                return f"{trash} is a symbolic link"
            trash.mkdir(exist_ok=True)
            if layer is None:
                path.rename(aside)
            else:
                lift(repository.common_dir, layer, aside)
        except OSError as error:
            return f"it could not be moved aside: {error.strerror}"
        try:
            clear_missing(repository, path, into=entry_in(into) if into else None)
        except RepositoryError as error:
            # Git still has the entry, so the tree must be at its path again.
            if layer is None:
                aside.rename(path)
            else:
                put_down(layer, aside)
            return error.message
    if layer is not None:
        drop_layer(repository.common_dir, layer)
    if sweep and into:
        _drop_empty(path.parent)
    elif sweep:  # outside the lock, since the deletion of a large tree takes seconds
        sweep_trash(path.parent, only=aside)
    return ""


def has_trash(root: Path) -> bool:
    """Return whether anything below a worktree root waits for its deletion."""
    trash = root / TRASH
    return trash.is_dir() and not trash.is_symlink()


def sweep_trash(root: Path, *, only: Path | None = None) -> None:
    """Delete the trash below a worktree root, and the root itself once it is empty."""
    trash = root / TRASH
    if not has_trash(root):
        return
    for tree in [only] if only else list(trash.iterdir()):
        delete_tree(tree)
    _drop_empty(root)


def _drop_empty(root: Path) -> None:
    with suppress(OSError):
        (root / TRASH).rmdir()
        # Its removal would take the mount away from a session that is still there.
        if [path.name for path in root.iterdir()] == [git_place(root).name]:
            remove_links(git_place(root))
            git_place(root).rmdir()
        root.rmdir()


def waiting_trash(repository: Repository, root: Path) -> tuple[Path, ...]:
    """Return the trees below a worktree root, and entries of git's list, that wait for their deletion."""
    with metadata_lock(repository.common_dir):  # outside it, one may still have to be moved back
        trees = tuple((root / TRASH).iterdir()) if has_trash(root) else ()
        entries = removed_entries(repository)
        return (*trees, *(entries.iterdir() if entries.is_dir() else ()))


def thin_trash(repository: Repository, root: Path, *, most: int) -> None:
    """Delete the trash once it holds more than `most` trees; the folder itself stays.

    Also delete removed worktrees that cannot be brought back any more.
    """
    thin_removed(repository)
    trash = root / TRASH
    if not has_trash(root):
        return
    trees = list(trash.iterdir())
    for tree in trees if len(trees) > most else []:
        delete_tree(tree)


def _unreachable(repository: Repository, status: CheckoutStatus, branch: str | None) -> str:
    on, head = status.branch, status.head
    if branch is not None and on is not None and on != branch:
        return f"it is on branch {on}, not on {branch}"
    if on is None and head is not None:
        if branch is not None and not repository.is_ancestor(head, f"refs/heads/{branch}"):
            return f"its HEAD is detached at {head[:10]}, which is not reachable from {branch}"
        if branch is not None:
            return f"its HEAD is detached at {head[:10]}, not on {branch}"
        if not repository.run("for-each-ref", "--count=1", f"--contains={head}").stdout:
            return f"its HEAD is detached at {head[:10]}, which no branch or tag reaches"
    return ""


def _uncommitted(status: CheckoutStatus) -> str:
    dirty = status.dirty
    return f"{len(dirty)} uncommitted file{'s' * (len(dirty) != 1)}: {named(dirty)}" if dirty else ""


def _invisible(repository: Repository, path: Path, head: str | None) -> str:
    """Find what `git status` does not show: flagged files, and repositories inside this one."""
    if head and has_plain_index(path, head):
        return ""  # the usual case, without a process
    entries = repository.run("ls-files", "--stage", "-v", "-z", cwd=path).fields()
    hidden, nested = [], []
    for entry in entries:
        words, _, name = entry.partition("\t")
        flag, mode = words.split(" ")[:2]
        if mode == _GITLINK and (path / name / ".git").exists():
            nested.append(name)
        elif (flag == "S" or flag.islower()) and os.path.lexists(path / name):
            hidden.append(name)
    if nested:
        return f"it holds other git repositories: {named(nested)}"
    if hidden:
        return f"changes may hide behind skip-worktree or assume-unchanged: {named(hidden)}"
    return ""


def _private(repository: Repository, path: Path, git_dir: Path, branch: str | None) -> str:
    """Find what would vanish with the worktree's own git directory: refs, submodules, the log of its HEAD."""
    if is_there(f"{git_dir}/refs") and any(each.is_file() for each in (git_dir / "refs").rglob("*")):
        return "it has refs of its own"
    if is_there(f"{git_dir}/modules"):
        return "it holds initialized submodules"
    if branch is not None and (stashed := _stashes(repository, branch)):
        return f"its branch has {stashed} stash entr{'y' if stashed == 1 else 'ies'}"
    elsewhere = _logged(f"{repository.common_dir}/logs/refs/heads/{branch}") if branch else set()
    elsewhere |= _logged(log_of(repository.common_dir, path.name)) if branch else set()
    own = _logged(f"{git_dir}/logs/HEAD") - elsewhere
    if not own:
        return ""
    commits = "".join(f"{commit}\n" for commit in sorted(own)) + "".join(f"^{c}\n" for c in sorted(elsewhere))
    args = ("rev-list", "--ignore-missing", "--stdin", "--not", "--all")
    lost = repository.run(*args, stdin=commits.encode()).stdout.split()
    if lost:
        return (
            f"{len(lost)} commit{'s' * (len(lost) != 1)} made in it are on no branch, such as {lost[0][:10]}"
        )
    return ""


def _stashes(repository: Repository, branch: str) -> int:
    if not _may_have_stashes(repository.common_dir):
        return 0
    log = repository.run("log", "--walk-reflogs", "--format=%gs", "refs/stash", "--", check=False)
    prefixes = (f"On {branch}:", f"WIP on {branch}:")
    return sum(line.startswith(prefixes) for line in log.stdout.splitlines()) if not log.returncode else 0


def _may_have_stashes(common_dir: Path) -> bool:
    """Return cheaply whether a stash may exist; a reftable store would need a git command."""
    return is_there(f"{common_dir}/logs/refs/stash") or is_there(f"{common_dir}/reftable")


def _logged(path: Path | str) -> set[str]:
    """Read the commits that a reflog names."""
    try:
        lines = read_plain(path, sys.maxsize).splitlines()
    except OSError:
        return set()
    commits = {word.decode("ascii", "replace") for line in lines for word in line.split(b" ", 2)[:2]}
    return {commit for commit in commits if set(commit) <= set("0123456789abcdef") and set(commit) != {"0"}}

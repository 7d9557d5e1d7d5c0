"""Trees become spares: a new checkout, or the tree of a finished story, brought back to how it began.

A recycled tree is not cleaned up but rebuilt. Its part of the git directory is written again, with the index
that it had before anything ran in it. Every change since has left a newer change time in the file system,
which no program can set, so git writes each such file again; what the index does not name is deleted. Nothing
that the story left in its own index, such as flags that hide a change, has a say in this. What is not certain
then is no spare.
"""

import os
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from isolation.errors import IsolationError
from isolation.files.deletion import delete_tree
from isolation.files.disk import replace_file
from isolation.git.checkout import admin_dir, read_status
from isolation.git.contained.object_store import drop_store
from isolation.git.direct.index_file import IndexSummary, distrust, identity_of, summarize, touched
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository
from isolation.worktree.pool.folders import remember_folders
from isolation.worktree.pool.inspection import flaw_of
from isolation.worktree.pool.seals import (
    ADMIN_FILES,
    PREFIX,
    REASON,
    Seal,
    folder_times,
    forget,
    load_origin,
    original_index,
    remember_origin,
    surroundings_of,
    write_seal,
)
from isolation.worktree.removal import discard

_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
_CHECKOUT = ("checkout", "--force", "--quiet", "--no-recurse-submodules", "--detach")


def new_path(root: Path) -> Path:
    """Return a free path for a spare."""
    return root / f"{PREFIX}{secrets.token_hex(4)}"


def make_spare(repository: Repository, root: Path, commit: str, run_id: str, *, guarded: bool) -> str:
    """Check a commit out as a spare; return why there is none, empty if there is. Blocks."""
    path, surroundings = new_path(root), surroundings_of(repository).digest
    made = check_out(
        repository, path, commit, run_id, surroundings, reason=REASON, guarded=guarded, idle=True
    )
    if isinstance(made, str):
        return made
    write_seal(repository.common_dir, made)
    return ""


def check_out(
    repository: Repository,
    path: Path,
    commit: str,
    run_id: str,
    surroundings: str,
    *,
    reason: str,
    guarded: bool,
    idle: bool = False,
) -> Seal | str:
    """Check a commit out in a new worktree on no branch; return why there is none, if so. Blocks.

    `reason` is why the worktree is locked. With `idle` git takes only what the machine has to spare.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    args = ("worktree", "add", "--detach", "--no-checkout", "--lock", "--reason", reason, str(path), commit)
    found: Seal | str
    try:
        with metadata_lock(repository.common_dir):
            repository.run(*args)
        made = repository.run(*_NO_HOOKS, *_CHECKOUT, commit, "--", cwd=path, check=False, idle=idle)
        status = read_status(repository, path)
        if made.returncode or status.dirty or status.head != commit:
            found = made.stderr.strip() or "the checkout is not complete"
        else:
            found = _sealed(repository, path, commit, run_id, surroundings, guarded=guarded)
    except (IsolationError, OSError) as error:
        found = str(error)
    if isinstance(found, str) and path.exists():
        retire(repository, path)
    return found


def give(repository: Repository, path: Path, tip: str) -> Path | None:
    """Take the tree of a story that needs it no more into the pool; None if it cannot be used again. Blocks.

    The caller knows that nothing in it would be lost. It has no seal yet.
    """
    git_dir = admin_dir(repository, path)
    if git_dir is None or load_origin(repository.common_dir, git_dir.name) is None:
        return None
    return move_to_pool(repository, path, git_dir, tip)


def move_to_pool(repository: Repository, path: Path, git_dir: Path, tip: str) -> Path | None:
    """Rename the tree of a story to one of the pool, on no branch; None if that is not possible. Blocks."""
    spare = new_path(path.parent)
    with metadata_lock(repository.common_dir):
        try:
            # The rename first: whatever is killed after it, the story's path is free.
            os.rename(path, spare)  # noqa: PTH104  pathlib makes one more path of it
        except OSError:
            return None
        replace_file(f"{git_dir}/gitdir", os.fsencode(f"{spare}/.git\n"), durable=False)
        replace_file(f"{git_dir}/HEAD", f"{tip}\n".encode(), durable=False)
        replace_file(f"{git_dir}/locked", REASON.encode(), durable=False)
    drop_store(repository.common_dir, path.name)
    return spare


def recycle(
    repository: Repository, path: Path, base: str, run_id: str, *, guarded: bool, idle: bool = False
) -> str:
    """Make a spare of a tree that was given; return why that is not possible, empty if it is one. Blocks.

    With `idle` git takes only what the machine has to spare.
    """
    made = rebuild(repository, path, base, run_id, guarded=guarded, idle=idle)
    if isinstance(made, str):
        retire(repository, path)
        return made
    write_seal(repository.common_dir, made)
    return ""


def rebuild(
    repository: Repository, path: Path, base: str, run_id: str, *, guarded: bool, idle: bool = False
) -> Seal | str:
    """Bring a tree back to how it began, at a commit; return why that is not possible, if so. Blocks."""
    try:
        surroundings = surroundings_of(repository).digest
        found = _rebuilt(repository, path, base, surroundings, idle=idle)
        if isinstance(found, str):
            return found
        return _sealed(repository, path, base, run_id, surroundings, guarded=guarded, index=found)
    except (IsolationError, OSError, ValueError) as error:
        return str(error)


def _rebuilt(
    repository: Repository, path: Path, base: str, surroundings: str, *, idle: bool
) -> IndexSummary | str:
    """Rebuild a tree, and return its index; the reason if it cannot be done."""
    git_dir = admin_dir(repository, path)
    origin = load_origin(repository.common_dir, git_dir.name) if git_dir else None
    if git_dir is None or origin is None:
        return "how it began is not known"
    if origin.surroundings != surroundings:
        return "git's configuration has changed"
    if changes_attributes(repository, origin.commit, base):
        return "attributes have changed, by which git writes files"
    if (git_dir / "commondir").read_bytes() != b"../..\n":
        return "its part of the git directory was changed"
    reset_admin(git_dir)
    replace_file(git_dir / "HEAD", f"{origin.commit}\n".encode(), durable=False)
    source = original_index(repository.common_dir, git_dir.name)
    _restore_index(source, path, git_dir / "index", len(base) // 2, origin.recent)
    index = _written_again(repository, path, base, git_dir / "index", idle=idle)
    if isinstance(index, str):
        return index
    replace_file(git_dir / "HEAD", f"{base}\n".encode(), durable=False)
    return flaw_of(path, index) or index


def _written_again(
    repository: Repository, path: Path, base: str, index: Path, *, idle: bool
) -> IndexSummary | str:
    """Write the files of a tree that differ, delete what its index does not name, and return the index."""
    git = partial(repository.run, cwd=path, check=False, idle=idle)
    # Not `checkout`, which would look into changed files and leave those that hold the same by git's rules,
    # whatever their modes and line ends are.
    read = git("read-tree", "--reset", "-u", "--no-recurse-submodules", base)
    if read.returncode:
        return read.stderr.strip() or "git read-tree failed"
    with ThreadPoolExecutor(1) as threads:  # git works on another core meanwhile
        cleaning = threads.submit(git, "clean", "-ffdxq")
        found = summarize(index, len(base) // 2)
    cleaned = cleaning.result()
    return (cleaned.stderr.strip() or "git clean failed") if cleaned.returncode else found


def changes_attributes(repository: Repository, old: str, new: str) -> bool:
    """Whether files may have to be written in another way although their content is the same."""
    if old == new:
        return False
    args = ("diff-tree", "-r", "--name-only", "--no-renames", old, new, "--", ":(glob)**/.gitattributes")
    return bool(repository.run(*args).stdout)


def _sealed(
    repository: Repository,
    path: Path,
    commit: str,
    run_id: str,
    surroundings: str,
    *,
    guarded: bool,
    index: IndexSummary | None = None,
) -> Seal | str:
    """Return the seal of a tree in which nothing has happened, or why it cannot have one.

    `index` is its index, if that was read already.
    """
    git_dir = admin_dir(repository, path)
    if git_dir is None:
        return "it is not a worktree any more"
    reset_admin(git_dir)
    if (git_dir / "HEAD").read_text().strip() != commit:
        return "it is at another commit"
    if {each.name for each in git_dir.iterdir()} != ADMIN_FILES:
        return "its part of the git directory holds more than that of a new worktree"
    drop_store(repository.common_dir, path.name)
    recent = (index or summarize(git_dir / "index", len(commit) // 2)).recent
    remember_origin(repository, path, commit, surroundings, recent)
    remember_folders(repository, folder_times(repository.common_dir, git_dir.name), path, commit)
    return Seal(
        name=git_dir.name,
        path=str(path),
        commit=commit,
        run_id=run_id,
        surroundings=surroundings,
        index=identity_of(git_dir / "index"),
        guarded=guarded,
        recent=recent,
    )


def reset_admin(git_dir: Path) -> None:
    """Delete what a worktree in which nothing has happened does not have."""
    with os.scandir(git_dir) as found:
        entries = list(found)
    for entry in entries:
        if entry.name in ADMIN_FILES and entry.is_file(follow_symlinks=False):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)  # noqa: PTH108  text


def _restore_index(
    source: Path, tree: Path, target: Path, hash_size: int, recent: tuple[int, ...] | None
) -> None:
    """Bring the index back that a tree began with, so that git writes again what was changed since."""
    # Git itself notices what was changed in a later second than the one in which the index was written. What
    # was changed in the same one is found here; the other files of that second need not be read again.
    changed = touched(source, tree, hash_size, recent)
    replace_file(target, distrust(source.read_bytes(), changed, hash_size), durable=False)


def retire(repository: Repository, path: Path) -> None:
    """Remove a tree of the pool; the sweep of the trash deletes it. Blocks."""
    git_dir = admin_dir(repository, path)
    if git_dir is not None:
        forget(repository.common_dir, git_dir.name)
    with suppress(IsolationError):
        discard(repository, path, sweep=False)


def sweep_half_made(repository: Repository, root: Path, paths: set[Path]) -> None:
    """Remove trees of the pool that have no seal: a killed run was at work on them. Blocks.

    `paths` are the spares that have one. The caller holds the lease.
    """
    for path in root.glob(f"{PREFIX}*"):
        if path in paths or path.is_symlink() or not path.is_dir():
            continue
        if admin_dir(repository, path) is not None:
            retire(repository, path)
        elif _is_dead(repository, path):
            delete_tree(path)


def _is_dead(repository: Repository, path: Path) -> bool:
    """Whether a folder was a worktree of ours: its link leads to our git directory, or it holds nothing."""
    try:
        text = (path / ".git").read_text()
    except OSError:
        text = ""
    if not text:
        return all(each.name == ".git" for each in path.iterdir())
    return Path(text.removeprefix("gitdir:").strip()).parent == repository.common_dir / "worktrees"

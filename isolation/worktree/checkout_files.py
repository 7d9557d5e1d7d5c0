"""Checks out the files of a registered worktree, completes an interrupted checkout, and verifies the result.

All of it happens outside the metadata lock, since it is nearly all of the cost. Git writes the index last: a
tree without one was never checked out completely, so a file in it that differs is a partial write and not a
change, as long as it is the beginning of what belongs there. So it is after a power failure, as long as the
files need not be on the disk; there, the index is no proof.
"""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from isolation.errors import WorkspaceError
from isolation.git.checkout import admin_dir, read_status
from isolation.git.commits import named, retried
from isolation.git.direct.index_file import all_there, is_plain, load_index
from isolation.git.direct.refs import read_ref
from isolation.git.repository import GitOutput, Repository, failure
from isolation.paths import current_branch
from isolation.worktree.power_loss import UNSETTLED
from isolation.worktree.sparse import leave_out

if TYPE_CHECKING:
    import trio

BEHIND = "autopilot-behind"
"""A file in the git directory of a worktree that was a spare at another commit, until it is at its branch.

Its index is whole, but of that other commit: without this file a tree that a kill left so would look as if a
story had changed it back.
"""

PATIENCE_SECONDS = 5.0
"""For how long what can wait waits for a checkout that is under way."""

LARGE_INDEX = 2_000_000
"""From how many bytes of an index on, about 20,000 files, a checkout gains little by several processors."""

_LOCK_PATIENCE = 5.0
_ORPHAN_PATIENCE = 60.0
_wishes: "WeakKeyDictionary[trio.CapacityLimiter, list[Wish]]" = WeakKeyDictionary()
"""The worktrees that are being made, by the limiter of their checkouts."""
_NO_LARGE_FILE = ": smudge filter lfs failed"


class Wish:
    """A worktree that is being made: `placed` once its checkout has a place, `done` when it is complete."""

    def __init__(self, others: "list[Wish]") -> None:
        import trio

        self.done = trio.Event()
        self.placed = False
        self._others = others

    @property
    def is_last(self) -> bool:
        """Whether no other checkout waits for a place."""
        return all(other.placed for other in self._others if other is not self)


@asynccontextmanager
async def asking(limiter: "trio.CapacityLimiter") -> AsyncIterator[Wish]:
    """Be known to want a worktree until it is complete."""
    wishes = _wishes.setdefault(limiter, [])
    wish = Wish(wishes)
    wishes.append(wish)
    try:
        yield wish
    finally:
        wishes.remove(wish)
        wish.done.set()


async def after_checkouts(limiter: "trio.CapacityLimiter") -> None:
    """Wait until the stories have their files that are waiting for them now: these are to start first.

    A story that has ended can wait. To commit and remove a large tree takes as long as to check one out.
    """
    import trio

    before = tuple(_wishes.get(limiter, ()))
    async with limiter:
        pass
    with trio.move_on_after(PATIENCE_SECONDS):
        for wish in before:
            await wish.done.wait()


@asynccontextmanager
async def place_of_checkout(
    limiter: "trio.CapacityLimiter", wish: Wish, *, wanted: bool
) -> AsyncIterator[Callable[[], None]]:
    """Hold a place among the checkouts, if one is wanted; a thread may leave it before the end."""
    import trio

    if not wanted:
        wish.placed = True
        yield lambda: None
        return
    holder, token = object(), trio.lowlevel.current_trio_token()

    def leave() -> None:
        if holder in limiter.statistics().borrowers:
            limiter.release_on_behalf_of(holder)

    await limiter.acquire_on_behalf_of(holder)
    wish.placed = True
    try:
        yield partial(token.run_sync_soon, leave)
    finally:
        leave()


def workers_of(repository: Repository) -> int:
    """Return how many processors a checkout uses if no other waits: in a large tree, one."""
    try:
        large = (repository.common_dir / "index").stat().st_size > LARGE_INDEX
    except OSError:
        return 1
    return 1 if large else os.cpu_count() or 1


def with_workers(count: int) -> tuple[str, ...]:
    """Return what lets a checkout use several processors, for which it takes more time of them in all."""
    return ("-c", f"checkout.workers={count}") if count > 1 else ()


def populate(repository: Repository, path: Path, branch: str, workers: int = 1) -> GitOutput:
    """Check the branch out, its hooks included; `require_complete` verifies the result.

    The exit code says little: a failing hook makes git fail although every file is there.
    """
    args = (*with_workers(workers), "checkout", "--force", "--quiet", "--no-recurse-submodules", branch, "--")
    return retried(repository, args, path)


def is_half_filled(repository: Repository, path: Path) -> bool:
    """Return whether the first checkout was interrupted, or need not be on the disk."""
    git_dir = admin_dir(repository, path)
    return git_dir is not None and (
        not (git_dir / "index").exists() or _is_behind(git_dir) or (git_dir / UNSETTLED).exists()
    )


def _is_behind(git_dir: Path) -> bool:
    """Return whether a tree still has the files and the index of the spare that it was."""
    return (git_dir / BEHIND).exists()


def complete(repository: Repository, path: Path, branch: str) -> GitOutput:
    """Check out what is missing; a changed file is left as it is."""
    git_dir = admin_dir(repository, path)
    if git_dir is None:
        raise not_registered(path)
    _wait_for_index_lock(git_dir, path)
    if (git_dir / UNSETTLED).exists():  # it, too, may be torn, and it vouches for files that are
        (git_dir / "index").unlink(missing_ok=True)
    if not (git_dir / "index").exists():
        read = ("read-tree", "HEAD")
        output = retried(repository, read, path)
        if output.returncode != 0:
            raise failure(read, output)
        leave_out(repository, path)
    missing, changed = _differences(repository, path, behind=_is_behind(git_dir))
    partial = [name for name in changed if _is_partial_write(repository, path, name)]
    if partial == changed:
        return populate(repository, path, branch)
    # A changed file may be the user's work, so only what is missing or cut off is written.
    names = "".join(f"{name}\0" for name in (*missing, *partial)).encode(errors="surrogateescape")
    return repository.run("checkout-index", "--force", "-z", "--stdin", cwd=path, check=False, stdin=names)


def require_complete(
    repository: Repository,
    path: Path,
    *,
    branch: str | None,
    tip: str,
    filled: GitOutput | None,
    fresh: bool = False,
) -> None:
    """Raise unless the worktree is registered here, on its branch, at its commit, with its files.

    Without `filled` this call checked nothing out, and missing files were deleted by the story itself. A
    `fresh` one was filled by one checkout of its branch.
    """
    git_dir = admin_dir(repository, path)
    if git_dir is None:
        raise not_registered(path)
    succeeded = fresh and filled is not None and filled.returncode == 0
    if succeeded and _is_as_git_left_it(repository, path, git_dir, branch, tip):
        return  # the usual case, without a process
    status = read_status(repository, path)
    if (status.branch, status.head) != (branch, tip):
        raise WorkspaceError(
            f"{path} is at {(status.head or 'no commit')[:10]} on {status.branch}, "
            f"not at {tip[:10]} on {branch}",
            hint="is another process working there, or a post-checkout hook? run again without it",
        )
    if filled is None:
        return
    lacking = status.missing or status.staged or _truncated(repository, path, filled)
    if lacking:
        why = filled.stderr.strip().splitlines()[-1:] or ["git did not say why"]
        if why[0].endswith(_NO_LARGE_FILE):
            file = why[0].removeprefix("fatal: ").removesuffix(_NO_LARGE_FILE)
            raise WorkspaceError(
                f"{path} was not checked out completely: git-lfs does not have the content of {file}",
                hint="`git lfs fetch` brings it from the remote; then run again",
            )
        raise WorkspaceError(
            f"{path} was not checked out completely: {named(lacking)} missing or truncated ({why[0]})",
            hint="is the disk full, a filter in .gitattributes broken, the remote of a partial clone "
            "unreachable? fix this and run again",
        ) from failure(("checkout", str(path)), filled)  # what git said tells whether the disk was at fault


def _is_as_git_left_it(
    repository: Repository, path: Path, git_dir: Path, branch: str | None, tip: str
) -> bool:
    """Whether a checkout that succeeded is certainly complete; only git can tell what a hook did after it."""
    if branch is None or repository.has_checkout_hook or current_branch(path) != branch:
        return False
    at_tip = read_ref(repository.common_dir, f"refs/heads/{branch}") == tip
    return at_tip and is_whole(git_dir, path, len(tip) // 2)


def is_whole(git_dir: Path, path: Path, hash_size: int) -> bool:
    """Whether a tree that git has just checked out has something for every entry of its index. Blocks."""
    index = load_index(git_dir)
    plain = is_plain(index, hash_size, submodules=True)  # git leaves an empty folder for each
    return plain and all_there(index, path, hash_size)


def not_registered(path: Path) -> WorkspaceError:
    """Return the error for a folder that git does not know; only the user can say what is worth keeping."""
    return WorkspaceError(
        f"{path} is no longer connected to the repository",
        hint="`git worktree repair` fixes a lost .git file; otherwise move the folder away, then run again",
    )


def _differences(repository: Repository, path: Path, *, behind: bool = False) -> tuple[list[str], list[str]]:
    """Return the tracked paths that are missing, and those that exist but differ.

    What a tree that is `behind` has as its index does is neither: it is as another commit has it.
    """
    args = ("status", "--porcelain=v2", "-z", "--untracked-files=no", "--no-renames")
    missing: list[str] = []
    changed: list[str] = []
    for entry in repository.run(*args, cwd=path).fields():
        kind, state, *_ = entry.split(" ", 2)
        name = entry.split(" ", 10 if kind == "u" else 8)[-1]
        if state.endswith("D"):
            missing.append(name)
        # What the index lacks may be there by a checkout that was killed, or by somebody else.
        elif not behind or state[1] != "." or (state[0] == "D" and os.path.lexists(path / name)):
            changed.append(name)
    return missing, changed


def _truncated(repository: Repository, path: Path, filled: GitOutput) -> tuple[str, ...]:
    """Return the files that a failed checkout truncated: a full disk leaves no other trace in the tree.

    Git's index lists them as whole, so the next checkpoint would commit the truncated content.
    """
    if filled.returncode == 0:
        return ()
    _, changed = _differences(repository, path)
    return tuple(name for name in changed if _is_partial_write(repository, path, name, whole_too=False))


def _is_partial_write(repository: Repository, path: Path, name: str, *, whole_too: bool = True) -> bool:
    """Return whether a file holds only the beginning of what checkout would write, or all of it."""
    file = path / name
    if file.is_symlink() or not file.is_file():
        return False
    if whole_too and file.stat().st_size == 0:
        return True  # as a power failure leaves many
    whole = repository.run("cat-file", "--filters", f"HEAD:{name}", cwd=path, check=False)
    content, there = whole.stdout.encode(errors="surrogateescape"), file.read_bytes()
    return whole.returncode == 0 and content.startswith(there) and (whole_too or content != there)


def _wait_for_index_lock(git_dir: Path, path: Path) -> None:
    """Wait for a git command that outlived its coordinator; remove the lock of one that was killed.

    Only for a tree that no session has worked in yet: its lock can only be that of the checkout.
    """
    lock = git_dir / "index.lock"
    started = time.monotonic()
    while lock.exists():
        waited = time.monotonic() - started
        occupied = is_occupied(path)
        if waited > (_ORPHAN_PATIENCE if occupied else _LOCK_PATIENCE):
            raise WorkspaceError(
                f"a git command seems to be running in {path}: {lock} exists",
                hint="if none runs there, remove the lock file, then run again",
            )
        # No process and no index of its own: the checkout was killed, and nothing will ever release its lock.
        if occupied is False and (not (git_dir / "index").exists() or _is_behind(git_dir)):
            lock.unlink(missing_ok=True)
            return
        time.sleep(0.05)


def is_occupied(path: Path) -> bool | None:
    """Return whether a process has its current folder in the tree; None without procfs."""
    processes = Path("/proc")
    if not (processes / "self" / "cwd").exists():
        return None
    for process in processes.iterdir():
        if process.name.isdigit():
            try:
                cwd = Path(os.readlink(process / "cwd"))  # noqa: PTH115  a link of procfs, not a path
            except OSError:
                continue
            if cwd.is_relative_to(path):
                return True
    return False


def holds_only_checkout(repository: Repository, path: Path, tip: str, *, ignored: bool) -> bool:
    """Compare by name only: it needs no space on a full disk, and no session has worked here yet.

    With `ignored` there may be ignored files, too: a command has prepared the tree.
    """
    tracked = set(repository.run("ls-tree", "-r", "-z", "--name-only", tip).fields()) | {".git"}
    if ignored:
        listing = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard")
        tracked.update(repository.run(*listing, cwd=path).fields())
    return all(
        os.path.relpath(Path(folder, name), path) in tracked
        for folder, folders, names in os.walk(path)
        for name in (*names, *(each for each in folders if Path(folder, each).is_symlink()))
    )

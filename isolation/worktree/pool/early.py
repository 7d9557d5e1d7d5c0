"""The first tree of a run without spares is checked out while the program still loads.

That is before the run has the lease, so such a tree is of no use to anybody yet: it is on no branch, has no
seal, and only this process gives it to a story, once it has the lease. Another run that gets the lease
removes it as half made; a kill leaves it for the next run, which does the same.

Invariants:

- Nothing of the repository runs: where git would start a filter or a hook, stories make their own trees. So
  these commands need not be confined, which could not be had as early.
- A tree that is not given to a story is removed, however the run ends.
- Its entry says from the beginning that its files need not be on the disk.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

from isolation.errors import IsolationError
from isolation.files.lease import holder_is_alive
from isolation.git.checkout import admin_dir
from isolation.git.direct.index_file import identity_of
from isolation.git.direct.linked import add_entry, draft_entry, is_simple
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository
from isolation.model import WorkspaceRequest
from isolation.worktree.checkout_files import is_whole, with_workers, workers_of
from isolation.worktree.pool.claim import Spare
from isolation.worktree.pool.making import new_path
from isolation.worktree.pool.seals import (
    REASON,
    Seal,
    count_seals,
    forget,
    remember_origin,
    surroundings_of,
)
from isolation.worktree.power_loss import UNSETTLED
from isolation.worktree.registering.refusals import require_sane
from isolation.worktree.removal import discard

ROOM = 1000
"""How many times the size of git's index must be free; a tree is about a hundred times as large."""

_CHECKOUT = ("-c", "core.hooksPath=/dev/null", "checkout", "--force", "--quiet", "--no-recurse-submodules")


class EarlyTree:
    """A tree that is checked out, by as many processes as `workers` says; `filled` once git has ended."""

    def __init__(self, repository: Repository, path: Path, commit: str, surroundings: str) -> None:
        self.path = path
        self.commit = commit
        self.workers = workers_of(repository)
        self.filled = threading.Event()
        self._repository = repository
        self._surroundings = surroundings
        self._seal: Seal | None = None
        self._work = threading.Thread(target=self._make, name=f"early {path.name}")

    def begin(self) -> None:
        """Make it in the background."""
        self._work.start()

    def made(self) -> Spare | None:
        """Return it once it is complete; None, and it is removed, if it is not. May block."""
        self._work.join()
        seal, git_dir = self._seal, admin_dir(self._repository, self.path)
        with suppress(OSError):
            if seal is not None and git_dir is not None and identity_of(git_dir / "index") == seal.index:
                return Spare(seal=seal, hooked=self._repository.has_checkout_hook, early=True)
        self.drop()
        return None

    def drop(self) -> None:
        """Remove it, whatever has become of it. May block."""
        self._work.join()
        git_dir = admin_dir(self._repository, self.path)
        if git_dir is not None:
            forget(self._repository.common_dir, git_dir.name)
            with suppress(IsolationError):
                discard(self._repository, self.path)

    def _make(self) -> None:
        try:
            with suppress(IsolationError, OSError, ValueError):  # a story makes its own, and says why not
                self._seal = self._made()
        finally:
            self.filled.set()

    def _made(self) -> Seal | None:
        repository, common, commit = self._repository, self._repository.common_dir, self.commit
        draft = draft_entry(common, self.path, "", REASON, mark=UNSETTLED, commit=commit)
        with metadata_lock(common):
            add_entry(common, draft, self.path, "", commit)
        git_dir = admin_dir(repository, self.path)
        if git_dir is None:
            return None
        where = (f"--git-dir={git_dir}", f"--work-tree={self.path}")
        made = repository.run(*where, *with_workers(self.workers), *_CHECKOUT, check=False)
        self.filled.set()
        if made.returncode or not is_whole(git_dir, self.path, len(commit) // 2):
            return None
        remember_origin(repository, self.path, commit, self._surroundings)
        return Seal(
            name=git_dir.name,
            path=str(self.path),
            commit=commit,
            run_id="",
            surroundings=self._surroundings,
            index=identity_of(git_dir / "index"),
            guarded=False,
        )


_trees: dict[Path, EarlyTree] = {}
"""The one that no story has yet, by git directory."""


def check_out_early(repository: Repository, root: Path, base: str) -> None:
    """Begin to check out a commit for the first story at it, if that is all that a worktree needs."""
    common = repository.common_dir
    if count_seals(common) or holder_is_alive(common) or not _is_simple(repository, root):
        return
    surroundings = surroundings_of(repository)
    if surroundings.hooks or surroundings.programs:
        return
    tree = _trees[common] = EarlyTree(repository, new_path(root), base, surroundings.digest)
    tree.begin()


def early_tree(common_dir: Path) -> EarlyTree | None:
    """Return the tree that no story has yet; None without one."""
    return _trees.get(common_dir)


def claim_early(common_dir: Path, root: Path, commit: str) -> EarlyTree | None:
    """Take the tree of a commit for a story; None without one. Its checkout may still be under way."""
    tree = _trees.get(common_dir)
    if tree is None or tree.commit != commit or tree.path.parent != root:
        return None
    return _trees.pop(common_dir, None)  # of two threads, one gets it


def drop_early(common_dir: Path) -> None:
    """Remove the tree if no story has it. May block until git has ended."""
    tree = _trees.pop(common_dir, None)
    if tree is not None:
        tree.drop()


def _is_simple(repository: Repository, root: Path) -> bool:
    """Whether a worktree is an entry that can be written without git, and a checkout, and has ample room."""
    common = repository.common_dir
    special = (
        repository.top / ".gitmodules",
        common / "info" / "sparse-checkout",
        common / "hooks" / "post-checkout",
    )
    if not is_simple(common) or any(map(os.path.lexists, special)):
        return False
    request = WorkspaceRequest(
        run_id="early", story_id="early", branch="early", path=root / "early", parents=("",)
    )
    try:
        require_sane(repository, request)
        disk, index = os.statvfs(root if root.is_dir() else root.parent), (common / "index").stat()
    except (IsolationError, OSError):
        return False  # a story says why
    return disk.f_bavail * disk.f_frsize > ROOM * index.st_size

"""A spare becomes the worktree of a story, in milliseconds and at any size.

Order matters for a kill in between: without its seal the tree is half made, and the next run removes it;
with its registration at the story's path, but before the rename, it is a worktree whose folder is gone;
after the rename it is the story's.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from isolation.files.disk import replace_file
from isolation.files.lookups import is_link
from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.checkout import admin_dir
from isolation.git.contained.object_store import drop_store
from isolation.git.direct.index_file import identity_of, summarize, touched
from isolation.git.direct.linked import first_line_of_log
from isolation.git.registrations import lock_reason
from isolation.git.repository import Repository
from isolation.model import WorkspaceRequest
from isolation.worktree.checkout_files import BEHIND
from isolation.worktree.pool.folders import has_same_folders
from isolation.worktree.pool.inspection import flaw_of
from isolation.worktree.pool.preparation import ignored_files
from isolation.worktree.pool.seals import ADMIN_FILES, Seal, folder_times


class Spare(Struct, frozen=True, kw_only=True):
    """A spare that was taken; `hooked` says that a hook wants to see its checkout.

    A `small` one was the tree of another story of this run; an `early` one need not be on the disk yet.
    """

    seal: Seal
    hooked: bool
    small: bool = False
    early: bool = False

    @property
    def path(self) -> Path:
        """Where it is until it is a story's."""
        return Path(self.seal.path)

    def is_ready_at(self, tip: str) -> bool:
        """Whether nothing has to be checked out for a story that starts at `tip`."""
        return self.seal.commit == tip and not self.hooked


def is_intact(repository: Repository, seal: Seal, surroundings: str) -> bool:
    """Whether a spare is where and as it was left, by a few small files."""
    path = Path(seal.path)
    git_dir = admin_dir(repository, path)
    try:
        return (
            git_dir is not None
            and not is_link(path)
            and git_dir.name == seal.name
            and seal.surroundings == surroundings
            and set(os.listdir(git_dir)) == ADMIN_FILES  # noqa: PTH208  names are enough
            and read_plain(f"{git_dir}/HEAD", LONGEST_POINTER) == f"{seal.commit}\n".encode()
            and identity_of(f"{git_dir}/index") == seal.index
        )
    except OSError:
        return False


def is_unchanged(repository: Repository, seal: Seal, *, thorough: bool) -> bool:
    """Look at every file of a spare; with `thorough` also for what git does not show. Blocks.

    What a command has left in it leaves no room for a thorough look.
    """
    path, git_dir = Path(seal.path), repository.common_dir / "worktrees" / seal.name
    # Not `status`, which looks into changed files and does not show those that hold the same by git's rules.
    times = folder_times(repository.common_dir, seal.name)
    others = () if seal.prepared or has_same_folders(times, path) else (("ls-files", "--others"),)
    looks = (("diff-files", "--name-only", "--ignore-submodules=none"), *others)

    def differs(args: tuple[str, ...]) -> bool:
        found = repository.run(*args, "-z", cwd=path, check=False)
        return bool(found.returncode or found.stdout)

    with ThreadPoolExecutor(len(looks)) as threads:  # a story may be waiting for the answer
        if any(threads.map(differs, looks)):
            return False
    index, hash_size = git_dir / "index", len(seal.commit) // 2
    try:
        if touched(index, path, hash_size, seal.recent):
            return False
        if seal.prepared:
            return not thorough and ignored_files(repository, path) == seal.ignored
        return not thorough or not flaw_of(path, summarize(index, hash_size))
    except (OSError, ValueError):
        return False


def attach(repository: Repository, spare: Spare, request: WorkspaceRequest, tip: str) -> None:
    """Make a spare the worktree of a story whose branch exists. Under the caller's metadata lock; blocks."""
    git_dir = f"{repository.common_dir}/worktrees/{spare.seal.name}"
    if not spare.is_ready_at(tip):
        Path(git_dir, BEHIND).touch()
    log = first_line_of_log(repository.common_dir, request.branch, tip)
    if log:
        with suppress(FileExistsError):
            os.mkdir(f"{git_dir}/logs")  # noqa: PTH102  text, as all here
        replace_file(f"{git_dir}/logs/HEAD", log, durable=False)
    reason = lock_reason(request.run_id, request.story_id)
    replace_file(f"{git_dir}/locked", reason.encode(), durable=False)
    replace_file(f"{git_dir}/HEAD", os.fsencode(f"ref: refs/heads/{request.branch}\n"), durable=False)
    replace_file(f"{git_dir}/gitdir", os.fsencode(f"{request.path}/.git\n"), durable=False)
    os.rename(spare.seal.path, request.path)  # noqa: PTH104  text, as above
    drop_store(repository.common_dir, spare.path.name)

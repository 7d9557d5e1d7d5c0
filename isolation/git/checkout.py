"""The status of a checkout, by one git command and a few small files: where it is, and what differs in it.

The runner asks about every workspace several times; a process for each question would cost more than the
answers. What git documents as plain files (the `.git` file of a linked worktree and the path back in its
`gitdir`) is read directly.
"""

import os
import time
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.contained.private_refs import is_moved
from isolation.git.direct.tree_look import look_at_tree, settled, staged_since
from isolation.git.repository import Repository
from isolation.paths import branch_in, own_git_dir

_STEP_OF_CLOCK = 3 * 10**7
"""More nanoseconds than the clock that stamps files stands still; it is ten milliseconds at most."""
_MOST_LINES = 10_000
_lines: dict[str, tuple[tuple[int, ...], str]] = {}
_WORDS_BEFORE_PATH = {"1": 8, "u": 10, "?": 1}


class CheckoutStatus(Struct, frozen=True, kw_only=True):
    """The state of a checkout. `dirty` holds every path that is changed, staged, in conflict or untracked.

    `deep` holds the submodules in which something is uncommitted. With `compared`, which is the index, git
    has not been asked: some of what is dirty may be ignored, or not be changed after all. That index is
    plain, and in `git_dir`, the checkout's own as long as no session is alive there.
    """

    head: str | None
    branch: str | None
    dirty: tuple[str, ...]
    conflicts: tuple[str, ...]
    missing: tuple[str, ...]
    staged: tuple[str, ...]
    deep: tuple[str, ...]
    compared: bytes = b""
    git_dir: Path | None = None


def seen_status(
    repository: Repository,
    cwd: Path,
    branch: str,
    tip: str,
    index: tuple[int, ...],
    *,
    git_dir: Path | None = None,
) -> CheckoutStatus | None:
    """Return the status of a small worktree without a process; None if only git can tell. Blocks.

    `index` is what the file system said of git's index when it had the files of `tip`, and nothing else was
    staged. No session may be alive there. `git_dir` is the checkout's own, if it is known.
    """
    git_dir = git_dir or own_git_dir(cwd)
    if (
        not index
        or git_dir is None
        or branch_in(git_dir) != branch
        or is_moved(repository.common_dir, cwd.name)
    ):
        return None
    look = look_at_tree(git_dir, cwd, index, len(tip) // 2)
    if look is None or repository.branch_tip(branch) != tip:
        return None
    return CheckoutStatus(
        head=tip,
        branch=branch,
        dirty=(*look.changed, *look.unknown),
        conflicts=(),
        missing=(),
        staged=(),
        deep=(),
        compared=look.index,
        git_dir=git_dir,
    )


def read_status(repository: Repository, cwd: Path, *, idle: bool = False) -> CheckoutStatus:
    """Read the status of a checkout without changing it; ignored files do not show.

    If it is `idle`, git takes only what the machine has to spare.
    """
    args = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames")
    head = branch = None
    dirty, conflicts, missing, staged, deep = [], [], [], [], []
    for entry in repository.run(*args, "--ignore-submodules=none", cwd=cwd, idle=idle).fields():
        if entry.startswith("# branch.oid ") and not entry.endswith("(initial)"):
            head = entry.removeprefix("# branch.oid ")
        elif entry.startswith("# branch.head ") and not entry.endswith("(detached)"):
            branch = entry.removeprefix("# branch.head ")
        words = _WORDS_BEFORE_PATH.get(entry[0])
        if words is None:
            continue
        path = entry.split(" ", words)[-1]
        dirty.append(path)
        if entry[0] == "u":
            conflicts.append(path)
        elif entry[0] == "1":
            state = entry[2:4]
            missing += [path] if state[1] == "D" else []
            staged += [path] if state[0] != "." else []
            deep += [path] if entry[5] == "S" and entry[7:9] != ".." else []
    return CheckoutStatus(
        head=head,
        branch=branch,
        dirty=tuple(dirty),
        conflicts=tuple(conflicts),
        missing=tuple(missing),
        staged=tuple(staged),
        deep=tuple(deep),
    )


def after_staging(cwd: Path, status: CheckoutStatus) -> CheckoutStatus:
    """Return the status with just what is staged now as what is dirty, if git has not been asked before."""
    git_dir = own_git_dir(cwd)
    if not status.compared or git_dir is None:
        return status
    return replace(status, dirty=staged_since(status.compared, git_dir, len(status.head or "") // 2))


def index_identity(cwd: Path, git_dir: Path | None = None) -> tuple[int, ...]:
    """Return what the file system says of a checkout's index, before anybody else writes there. Blocks."""
    git_dir = git_dir or own_git_dir(cwd)
    return settled(f"{git_dir}/index") if git_dir else ()


def admin_dir(repository: Repository, path: Path, git_dir: Path | None = None) -> Path | None:
    """Return the git directory of a linked worktree of this repository; None if it is not one.

    `git_dir` is what its `.git` leads to, if that is known.
    """
    git_dir = git_dir or own_git_dir(path)
    if git_dir is None or f"{git_dir}" != f"{repository.common_dir}/worktrees/{git_dir.name}":
        return None
    return git_dir if worktree_of(git_dir) == path else None


def admin_dir_of_missing(repository: Repository, path: Path) -> Path | None:
    """Find the registration of a path by the path back that git stores; the folder itself may be gone."""
    listed = f"{repository.common_dir}/worktrees"
    try:
        names = sorted(os.listdir(listed))  # noqa: PTH208  names
    except FileNotFoundError:
        return None
    return next((Path(listed, name) for name in names if worktree_of(f"{listed}/{name}") == path), None)


def worktree_of(git_dir: Path | str) -> Path | None:
    """Return the checkout that a linked worktree's git directory points back to.

    All worktrees are asked for that before each session, so what has not changed is not read again.
    """
    pointer = line_of(f"{git_dir}/gitdir")
    return None if pointer is None else _place_of(f"{git_dir}", pointer)


@lru_cache(maxsize=_MOST_LINES)
def _place_of(git_dir: str, pointer: str) -> Path:
    """Return the checkout by the path back; newer versions of git can keep a relative one."""
    return Path(os.path.normpath(os.path.join(git_dir, pointer))).parent  # noqa: PTH118  as it was written


def line_of(file: str) -> str | None:
    """Return the one line of a small file of git's list of worktrees; None if it cannot be read.

    Such files are asked for again and again, one for each worktree. So what was read is kept, as long as the
    file system says the same of the file.
    """
    try:
        found = os.stat(file)  # noqa: PTH116  many, as text
        state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = _lines.get(file)
        if known is not None and known[0] == state:
            return known[1]
        line = os.fsdecode(read_plain(file, LONGEST_POINTER)).rstrip("\n")
    except OSError:
        return None
    age = time.time_ns() - found.st_ctime_ns
    # What changes while the clock of the file system shows the same time would look the same.
    if found.st_ctime_ns % 10**9 and age > _STEP_OF_CLOCK:
        if len(_lines) >= _MOST_LINES:
            _lines.clear()
        _lines[file] = (state, line)
    return line

"""What git commands on a story's tree may write: no more than a session of that story.

Git executes what a tree and its git directory tell it to: filters and drivers with relative paths, hooks, the
configuration of the worktree, of a submodule or of a nested repository. A session can write all of these, and
could have the coordinator run its programs. So the commands run under a confinement of their own.

Invariants:

- A tree is a story's by where it lies, whatever its `.git` says.
- Which branches are open does not depend on anything that a session can write.
- The worktree's link to the shared git directory is the one that git made, or no command runs.
"""

import os
import shutil
from functools import cache
from pathlib import Path

from isolation.errors import WorkspaceError
from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.contained.means import available_means, sealed
from isolation.model import Confinement, EnforcementLevel, Means
from isolation.paths import RepositoryPaths, holds_worktrees, indexes_dir, own_git_dir

NAMESPACE = Path("heads", "autopilot")
"""The refs that stories' commits move."""

_LINK = "commondir"
_MADE_BY_GIT = "../.."


def confinement_of(
    paths: RepositoryPaths, where: Path, index: Path | None, *, writes: bool = False
) -> Confinement | None:
    """Return the confinement of a command in a tree; None in the user's checkouts, or without any means.

    `index` is a private index that the command uses. In a checkout that stories share, that is what shows
    that the command is about their files; such a command may not change them unless it `writes`.
    """
    common = paths.common_dir
    if index is not None and index.parent == indexes_dir(common):
        means = available_means()
        return _in_shared_tree(common, where, index, means, writes=writes) if means else None
    if where in _users(paths) or not holds_worktrees(common, where.parent):
        return None
    git_dir = _own_git_dir(common, where)
    if git_dir is not None:
        _require_own_link(git_dir, where)
    means = available_means()
    if means is None:
        return None
    closed = {path: "a checkout" for path in (*_users(paths), where.parent) if path.is_dir()}
    opened = [where, *_written_by_commits(common), *([git_dir] if git_dir else [])]
    opened += [index.parent] if index else []
    return sealed(
        Confinement(
            level=EnforcementLevel.DENY,
            means=means,
            read_only=closed,
            writable=tuple(dict.fromkeys(path for path in opened if path.is_dir())),
        )
    )


def _in_shared_tree(common: Path, where: Path, index: Path, means: Means, *, writes: bool) -> Confinement:
    index.parent.mkdir(parents=True, exist_ok=True)
    opened = [index.parent, common / "objects", *_for_lfs(common)]
    return sealed(
        Confinement(
            level=EnforcementLevel.DENY,
            means=means,
            read_only={common: "the git directory", **({} if writes else {where: "the shared tree"})},
            writable=tuple(path for path in opened if path.is_dir()),
        )
    )


def _own_git_dir(common: Path, where: Path) -> Path | None:
    """Return the worktree's part of the shared git directory; None if its links were changed."""
    git_dir = own_git_dir(where)
    if git_dir is None or git_dir.parent != common / "worktrees":
        return None
    try:
        pointer = os.fsdecode(read_plain(git_dir / "gitdir", LONGEST_POINTER)).rstrip("\n")
    except OSError:
        return None
    return git_dir if os.path.normpath(git_dir / pointer) == str(where / ".git") else None


def _users(paths: RepositoryPaths) -> tuple[Path, ...]:
    named = (paths.top, paths.common_dir, paths.main_checkout)
    return tuple(dict.fromkeys(path for path in named if path))


def _written_by_commits(common: Path) -> list[Path]:
    """Return the folders of the git directory that a commit on a story's branch writes to."""
    refs = [common / "refs" / NAMESPACE, common / "logs" / "refs" / NAMESPACE]
    for folder in refs:
        folder.mkdir(parents=True, exist_ok=True)  # git removes it whenever it is empty
    # A reftable has all refs in one folder, so it is open or no commit can be made.
    return [*refs, common / "objects", common / "reftable", *_for_lfs(common)]


def _for_lfs(common: Path) -> list[Path]:
    """Return the folder in which git-lfs stores files; only an existing folder can be left open."""
    if _has_lfs():
        (common / "lfs").mkdir(exist_ok=True)
    return [common / "lfs"]


@cache
def _has_lfs() -> bool:
    return shutil.which("git-lfs") is not None


def _require_own_link(git_dir: Path, where: Path) -> None:
    """Refuse a worktree that was pointed at another git directory, whose configuration is not the user's."""
    try:
        link = read_plain(git_dir / _LINK, LONGEST_POINTER, follow=False).strip()
    except OSError:
        link = b""
    if link != _MADE_BY_GIT.encode():
        raise WorkspaceError(
            f"the git directory of {where} was changed: {git_dir / _LINK} does not lead to the repository",
            hint=f"the files are kept; `echo {_MADE_BY_GIT} > {git_dir / _LINK}` restores the link",
        )

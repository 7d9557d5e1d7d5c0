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
import stat
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from msgspec.structs import replace

from isolation.errors import WorkspaceError
from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.contained.means import available_means
from isolation.git.contained.object_store import SHARED, object_mounts
from isolation.git.contained.private_refs import ref_mounts
from isolation.git.contained.story_branches import NAMESPACE
from isolation.model import Confinement, EnforcementLevel, Means
from isolation.paths import RepositoryPaths, holds_worktrees, indexes_dir, own_git_dir

_LINK = "commondir"
_READ_BY_GIT = (".gitattributes", ".gitignore", ".gitmodules")
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
    users = _users(paths)
    if where in users or not holds_worktrees(common, where.parent):
        return None
    git_dir = _own_git_dir(common, where)
    if git_dir is not None:
        _require_own_link(git_dir, where)
    _require_plain(git_dir, where)
    means = available_means()
    if means is None:
        return None
    closed = {path: "a checkout" for path in (*users, where.parent) if path.is_dir()}
    opened = [where, *_written_by_commits(common), *([git_dir] if git_dir else [])]
    opened += [index.parent] if index else []
    confinement = Confinement(
        level=EnforcementLevel.DENY,
        means=means,
        read_only=closed,
        writable=tuple(dict.fromkeys(path for path in opened if path.is_dir())),
    )
    return with_refs(with_store(confinement, common, where.name, tree=where), common)


def with_store(
    confinement: Confinement, common: Path, name: str, *, seen: Path | None = None, tree: Path | None = None
) -> Confinement:
    """Return a confinement with the objects protected, if its means can do that. Blocks.

    `seen` is where the git directory stands for the process, `tree` the worktree, which must be there.
    """
    mounts = object_mounts(common, name, confinement.means, seen=seen, tree=tree)
    if mounts is None:
        return confinement
    return replace(
        confinement,
        read_only={**confinement.read_only, **mounts.read_only},
        writable=tuple(dict.fromkeys((*confinement.writable, *mounts.writable))),
        sources={**confinement.sources, **mounts.sources},
        store=name,
    )


def with_refs(
    confinement: Confinement, common: Path, branch: str = "", *, fresh: bool = False
) -> Confinement:
    """Return a confinement with a store in which only the story's own branch can be moved. Blocks."""
    mounts = ref_mounts(common, confinement.store, branch, fresh=fresh) if confinement.store else None
    if mounts is None:
        return confinement
    return replace(
        confinement,
        read_only={**confinement.read_only, **mounts.read_only},
        writable=tuple(dict.fromkeys((*confinement.writable, *mounts.writable))),
        sources={**confinement.sources, **mounts.sources},
    )


def _in_shared_tree(common: Path, where: Path, index: Path, means: Means, *, writes: bool) -> Confinement:
    index.parent.mkdir(parents=True, exist_ok=True)
    opened = [index.parent, common / "objects", *_for_lfs(common)]
    confinement = Confinement(
        level=EnforcementLevel.DENY,
        means=means,
        read_only={common: "the git directory", **({} if writes else {where: "the shared tree"})},
        writable=tuple(path for path in opened if path.is_dir()),
    )
    return with_store(confinement, common, SHARED)


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


@lru_cache(maxsize=64)
def _users(paths: RepositoryPaths) -> tuple[Path, ...]:
    """Return the checkouts that are the user's, and the git directory."""
    named = (paths.top, paths.common_dir, paths.main_checkout)
    return tuple(dict.fromkeys(path for path in named if path))


def _written_by_commits(common: Path) -> list[Path]:
    """Return the folders of the git directory that a commit on a story's branch writes to."""
    refs = [common / "refs" / NAMESPACE, common / "logs" / "refs" / NAMESPACE]
    for folder in refs:
        if not folder.is_dir():  # git removes it whenever it is empty
            folder.mkdir(parents=True, exist_ok=True)
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


def _require_plain(git_dir: Path | None, where: Path) -> None:
    """Refuse a tree with a FIFO or a device where git reads a file: it would wait for ever."""
    for name in _READ_BY_GIT:
        with suppress(OSError):
            mode = (where / name).lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                raise _not_a_file(where / name)
    if git_dir is None:
        return
    with suppress(OSError), os.scandir(git_dir) as entries:
        for entry in entries:
            # What a folder says about its entries is enough, and costs nothing.
            if not (entry.is_symlink() or entry.is_file() or entry.is_dir()):
                raise _not_a_file(Path(entry.path))


def _not_a_file(path: Path) -> WorkspaceError:
    return WorkspaceError(
        f"{path} is not a file, so git would wait for it",
        hint="the files are kept; remove it, then run again",
    )

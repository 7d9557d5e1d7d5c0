"""Worktrees that hold only some folders: git's sparse checkout in cone mode, for one worktree alone.

Besides the folders with all that is in them, such a tree holds the files beside and above each of them. The
choice is part of the worktree's own configuration; the main checkout and other worktrees stay as they are.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from isolation.errors import WorkspaceError
from isolation.git.metadata_lock import metadata_lock
from isolation.git.repository import Repository

OLDEST_GIT = (2, 36)
"""The first version in which new worktrees have a configuration of their own without further ado."""

_EXTENSION = "extensions.worktreeConfig"


def require_possible(repository: Repository) -> None:
    """Raise if worktrees of this repository cannot be sparse."""
    if repository.version < OLDEST_GIT:
        found = ".".join(map(str, repository.version))
        raise WorkspaceError(
            f"sparse worktrees need git 2.36 or newer, and this is git {found}",
            hint="install a newer git, or remove `sparse-paths` and `sparse` from the settings",
        )
    if repository.main_checkout is None or _get(repository, "core.worktree"):
        raise WorkspaceError(
            "worktrees of a bare repository, or of one whose checkout lies elsewhere, cannot be sparse",
            hint="run in an ordinary clone, or remove `sparse-paths` and `sparse` from the settings",
        )


def absent_folders(repository: Repository, commit: str, folders: Sequence[str]) -> tuple[str, ...]:
    """Return those paths that a commit does not have. Blocks."""
    found = _kinds(repository, commit, folders)
    return tuple(folder for folder in folders if _plain(folder) not in found)


def make_sparse(repository: Repository, path: Path, folders: Sequence[str], commit: str) -> None:
    """Have git leave everything else out of a worktree whose files are not checked out yet. Blocks."""
    require_possible(repository)
    with metadata_lock(repository.common_dir):
        # In the configuration that all share: git itself would set it here, but without a lock.
        if _get(repository, _EXTENSION) != "true":
            repository.run("config", _EXTENSION, "true")
    kinds = _kinds(repository, commit, folders)
    cone = dict.fromkeys(
        str(PurePosixPath(name).parent) if kinds.get(name) == "blob" else name
        for name in map(_plain, folders)
    )
    repository.run(
        "sparse-checkout", "set", "--cone", "--", *(name for name in cone if name != "."), cwd=path
    )


def leave_out(repository: Repository, path: Path) -> None:
    """Mark in an index that was just read what a sparse worktree leaves out; another one stays as it is."""
    if _get(repository, "core.sparseCheckout", cwd=path) == "true":
        repository.run("sparse-checkout", "reapply", cwd=path, check=False)


def _plain(folder: str) -> str:
    return str(PurePosixPath(folder))


def _get(repository: Repository, name: str, *, cwd: Path | None = None) -> str:
    return repository.run("config", "--get", name, cwd=cwd, check=False).stdout.strip()


def _kinds(repository: Repository, commit: str, folders: Sequence[str]) -> dict[str, str]:
    """Return what a commit has at these paths: `tree`, `blob` or `commit`."""
    if not folders:
        return {}
    names = [_plain(folder) for folder in folders]
    listing = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", *names)
    entries = (entry.partition("\t") for entry in repository.run(*listing).fields())
    return {name: words.split(" ")[1] for words, _, name in entries}

"""Files that a sparse checkout leaves out, asked of git again only when the checkout's index has changed."""

import os
from functools import lru_cache
from pathlib import Path

from isolation.git.repository import Repository
from isolation.paths import own_git_dir

_SKIPPED = "S "


def skipped_paths(repository: Repository, cwd: Path) -> tuple[str, ...]:
    """Return the paths that git does not expect in a checkout of the user. Blocking."""
    git_dir = own_git_dir(cwd)
    try:
        found = os.stat(f"{git_dir}/index") if git_dir else None  # noqa: PTH116  text
    except OSError:
        found = None
    if found is None:
        return _listed(repository, cwd)
    # Git never writes an index in place, so a new one is another file.
    return _remembered(_Asked(repository), cwd, (found.st_ino, found.st_mtime_ns, found.st_ctime_ns))


class _Asked:
    """The repository, which is not compared by its many fields: there is one in a process."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self.repository.common_dir == other.repository.common_dir

    def __hash__(self) -> int:
        return hash(self.repository.common_dir)


@lru_cache(maxsize=2)
def _remembered(asked: _Asked, cwd: Path, _state: tuple[int, ...]) -> tuple[str, ...]:
    return _listed(asked.repository, cwd)


def _listed(repository: Repository, cwd: Path) -> tuple[str, ...]:
    listing = ("ls-files", "-z", "-t")
    return tuple(
        entry[2:] for entry in repository.run(*listing, cwd=cwd).fields() if entry.startswith(_SKIPPED)
    )

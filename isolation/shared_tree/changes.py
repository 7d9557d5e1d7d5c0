"""What stories have changed between two commits, asked of git once.

Where claims may overlap, each story asks about all that were done before. The answer never changes.
"""

from pathlib import Path

from isolation.git.repository import Repository

_MOST_KEPT = 10_000
_known: dict[tuple[Path, str, str], tuple[str, ...]] = {}


def changed_between(repository: Repository, base: str, tip: str) -> tuple[str, ...]:
    """Return every path that differs between two commits, named by their ids; of a rename both."""
    key = (repository.common_dir, base, tip)
    found = _known.get(key)
    if found is None:
        found = repository.changed_paths(base, tip)
        note_changes(repository, base, tip, found)
    return found


def note_changes(repository: Repository, base: str, tip: str, paths: tuple[str, ...]) -> None:
    """Note what differs between two commits, by who has made the second."""
    if len(_known) >= _MOST_KEPT:
        _known.clear()
    _known[repository.common_dir, base, tip] = paths

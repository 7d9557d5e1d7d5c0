"""How much a story changed: paths with their added and removed lines."""

from msgspec import Struct

from isolation.git.repository import Repository


class ChangedPath(Struct, frozen=True, kw_only=True):
    """One path; `added` and `removed` are None for a binary file."""

    path: str
    added: int | None
    removed: int | None


def changes(repository: Repository, base: str, tip: str) -> tuple[ChangedPath, ...]:
    """Return what differs between two commits; a rename is both of its paths. Empty if one is unknown."""
    args = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", base, tip, "--")
    output = repository.run(*args, check=False)
    found = []
    for entry in output.fields() if output.returncode == 0 else ():
        added, removed, path = entry.split("\t", 2)
        found.append(ChangedPath(path=path, added=_lines(added), removed=_lines(removed)))
    return tuple(found)


def _lines(text: str) -> int | None:
    return int(text) if text.isdigit() else None

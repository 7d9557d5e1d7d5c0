"""How much a story changed: paths with their added and removed lines, and the diff of them."""

from collections.abc import Sequence

from msgspec import Struct

from isolation.git.repository import Repository

_LARGE_FILE = "core.bigFileThreshold=512k"
_MOST_PATHS = 200


class ChangedPath(Struct, frozen=True, kw_only=True):
    """One path; `added` and `removed` are None for a binary file."""

    path: str
    added: int | None
    removed: int | None


class Diff(Struct, frozen=True, kw_only=True):
    """The text of a diff; not `whole` if paths were left out of it."""

    text: str = ""
    whole: bool = True


def changes(repository: Repository, base: str, tip: str) -> tuple[ChangedPath, ...]:
    """Return what differs between two commits; a rename is both of its paths. Empty if one is unknown."""
    args = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", base, tip, "--")
    output = repository.run(*args, check=False)
    found = []
    for entry in output.fields() if output.returncode == 0 else ():
        added, removed, path = entry.split("\t", 2)
        found.append(ChangedPath(path=path, added=_lines(added), removed=_lines(removed)))
    return tuple(found)


def diff(
    repository: Repository, base: str, tip: str, changed: Sequence[ChangedPath], *, most_lines: int
) -> Diff:
    """Return the diff of the first of these paths, as many as have `most_lines` lines; no huge files.

    Empty if one of the commits is unknown.
    """
    paths: list[str] = []
    for change in changed[:_MOST_PATHS]:
        if most_lines < 0:
            break
        if change.added is not None and change.removed is not None:
            paths.append(change.path)
            most_lines -= change.added + change.removed
    whole = len(paths) == len(changed)
    if not paths:
        return Diff(whole=whole)
    quiet = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
    args = ("--literal-pathspecs", "-c", _LARGE_FILE, "diff-tree", "-r", "-p", *quiet, base, tip, "--")
    output = repository.run(*args, *paths, check=False)
    return Diff(text=output.stdout.rstrip("\n"), whole=whole) if output.returncode == 0 else Diff()


def _lines(text: str) -> int | None:
    return int(text) if text.isdigit() else None

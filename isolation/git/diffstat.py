"""How much a story changed: paths with their added and removed lines, and the diff of them."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from isolation.git.private_index import fresh_index
from isolation.git.repository import Repository
from isolation.paths import own_git_dir

_LARGE_FILE = "core.bigFileThreshold=512k"
_MOST_PATHS = 200
_QUIET = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")


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
    args = ("--literal-pathspecs", "-c", _LARGE_FILE, "diff-tree", "-r", "-p", *_QUIET, base, tip, "--")
    output = repository.run(*args, *paths, check=False)
    return Diff(text=output.stdout.rstrip("\n"), whole=whole) if output.returncode == 0 else Diff()


def diff_text(repository: Repository, base: str, tip: str, *, stat: bool = False) -> str:
    """Return the whole diff between two commits, or with `stat` how much of each path it changes."""
    form = ("--stat",) if stat else ("-p",)
    args = ("-c", _LARGE_FILE, "diff-tree", "-r", *form, *_QUIET, base, tip, "--")
    return repository.run(*args).stdout


def working_diff(
    repository: Repository, base: str, checkout: Path, *, index: Path, stat: bool = False
) -> str:
    """Return what a checkout has that a commit has not, whether it is committed, staged or not even known.

    `index` is a file for this call alone: a session that works there is neither disturbed nor waited for.
    """
    env = fresh_index(index)
    folder = own_git_dir(checkout)
    try:
        if folder is not None and (folder / "index").is_file():
            shutil.copyfile(folder / "index", index)
        repository.run("add", "--intent-to-add", "--all", "--", ".", cwd=checkout, env=env, check=False)
        form = ("--stat",) if stat else ("-p",)
        args = ("-c", _LARGE_FILE, "diff", *form, *_QUIET, base, "--")
        return repository.run(*args, cwd=checkout, env=env).stdout
    finally:
        for left in (index, index.with_name(f"{index.name}.lock")):
            left.unlink(missing_ok=True)


def _lines(text: str) -> int | None:
    return int(text) if text.isdigit() else None

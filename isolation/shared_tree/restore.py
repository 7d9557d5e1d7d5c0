"""Reads what is in quarantine, and writes it to a folder or the checkout without overwriting anything."""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isolation.errors import WorkspaceError
from isolation.git.checkout import read_status
from isolation.git.commits import named
from isolation.git.repository import Repository
from isolation.shared_tree.quarantine import MANIFEST, REFS, ForeignChange, Quarantine, from_json
from isolation.shared_tree.snapshot import read_blobs


def load_all(repository: Repository) -> tuple[Quarantine, ...]:
    """Read every quarantine of the repository, the oldest run first."""
    refs = repository.run("for-each-ref", "--format=%(refname)", REFS).stdout.split()
    return tuple(load(repository, ref) for ref in sorted(refs, key=_by_number))


def load(repository: Repository, ref: str) -> Quarantine:
    """Read one quarantine; a short name leaves out the common beginning of their refs."""
    full = ref if ref.startswith(REFS) else f"{REFS}{ref}"
    output = repository.run("cat-file", "blob", f"{full}:{MANIFEST}", check=False)
    if output.returncode != 0:
        raise WorkspaceError(
            f"unknown quarantine {ref!r}", hint="`autopilot-multi quarantine list` shows all"
        )
    try:
        read: dict[str, Any] = json.loads(output.stdout)
        return Quarantine(
            ref=full,
            run_id=str(read["run_id"]),
            story_ids=tuple(read["story_ids"]),
            changes=tuple(from_json(each) for each in read["changes"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WorkspaceError(
            f"the list of what {full} holds cannot be read: {error!r}",
            hint=f"its files are still there: `git ls-tree -r {full}`",
        ) from error


def export(repository: Repository, quarantine: Quarantine, into: Path) -> tuple[str, ...]:
    """Write what a quarantine holds to a folder; if any path exists already, nothing is written."""
    kept = _kept(quarantine)
    taken = [change.path for change in kept if os.path.lexists(into / change.path)]
    if taken:
        raise WorkspaceError(
            f"{into} already has these files, and nothing is overwritten: {named(taken)}",
            hint="name an empty folder with --to",
        )
    return _write(repository, kept, into)


def apply(repository: Repository, quarantine: Quarantine) -> tuple[str, ...]:
    """Write what a quarantine holds to the checkout, where paths are free or unchanged since the commit."""
    top = repository.top
    kept = _kept(quarantine)
    there = [change.path for change in kept if os.path.lexists(top / change.path)]
    listing = ("--literal-pathspecs", "ls-files", "-z", "--", *there)
    tracked = set(repository.run(*listing, cwd=top).fields()) if there else set()
    clean = tracked - set(read_status(repository, top).dirty)
    taken = [path for path in there if path not in clean]
    if taken:
        raise WorkspaceError(
            f"the checkout has changes of its own, and nothing is overwritten: {named(taken)}",
            hint="commit or stash them, or write the files to a folder with --to",
        )
    for path in there:
        (top / path).unlink()  # unchanged since the commit, so git has it
    return _write(repository, kept, top)


def _kept(quarantine: Quarantine) -> list[ForeignChange]:
    kept = [change for change in quarantine.changes if change.blob is not None and change.after is not None]
    # Links come last, so that no file is written through one.
    return sorted(kept, key=lambda change: bool(change.after and change.after.is_link))


def _write(repository: Repository, kept: Sequence[ForeignChange], into: Path) -> tuple[str, ...]:
    changes = {change.path: change for change in kept}
    blobs = {change.path: change.blob for change in kept if change.blob is not None}
    for path, data in read_blobs(repository, blobs):
        change, place = changes[path], into / path
        place.parent.mkdir(parents=True, exist_ok=True)
        # A link among its folders could lead the write elsewhere.
        if not Path(os.path.realpath(place.parent)).is_relative_to(os.path.realpath(into)):
            raise WorkspaceError(f"{place} leads out of {into}", hint="name an empty folder with --to")
        if data is None:
            raise WorkspaceError(
                f"the kept content of {named([path])} can no longer be read",
                hint="`git fsck` shows what is wrong with the repository",
            )
        if change.after is not None and change.after.is_link:
            place.symlink_to(os.fsdecode(data))
        else:
            place.write_bytes(data)
            place.chmod(stat.S_IMODE(change.after.mode) if change.after else 0o644)
    return tuple(change.path for change in kept)


def _by_number(ref: str) -> tuple[str, int]:
    prefix, _, number = ref.rpartition("/")
    return prefix, int(number) if number.isdigit() else 0

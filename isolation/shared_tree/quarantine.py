"""Foreign changes: kept under a ref of their own, proven readable, and only then undone in the tree.

A quarantine is a commit without parents. `changes.json` in it lists every path with what happened to
it; `files/` holds what the story wrote, byte by byte.

Invariants:

- A ref is made once, and never moved or deleted here.
- Nothing is undone that was not kept, nor what has changed again since it was kept.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from isolation.claims.owners import ancestors
from isolation.git.commits import commit_tree
from isolation.git.repository import Repository
from isolation.paths import EXCHANGE
from isolation.shared_tree.snapshot import (
    Contents,
    Difference,
    Fingerprint,
    fingerprint_of,
    store,
    store_texts,
)

REFS = "refs/autopilot/quarantine/"
MANIFEST = "changes.json"
FILES = "files"
_DOT_GIT = ".git"
_ESCAPED = "dot-git"
"""The name for `.git` inside a quarantine, where git does not allow it."""


class ChangeEffect(StrEnum):
    """What happened to a path."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    MODE = "mode changed"
    TIMES = "touched"
    LINKED = "hard-linked"


class ForeignChange(Struct, frozen=True, kw_only=True):
    """One change outside a story's claim; `blob` is what was written, None if that is not kept."""

    path: str
    what: ChangeEffect
    before: Fingerprint | None = None
    after: Fingerprint | None = None
    blob: str | None = None

    @property
    def needs_content(self) -> bool:
        """Whether something was written that would be lost when the change is undone."""
        after = self.after
        return (
            self.what in {ChangeEffect.CREATED, ChangeEffect.CHANGED}
            and after is not None
            and not after.is_folder
        )


class Quarantine(Struct, frozen=True, kw_only=True):
    """What is kept under one ref. `story_ids` are all stories that may have made the changes."""

    ref: str
    run_id: str
    story_ids: tuple[str, ...]
    changes: tuple[ForeignChange, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The changed paths; a folder counts only if nothing in it does."""
        above = {folder for change in self.changes for folder in ancestors(change.path)}
        appeared_or_vanished = {
            change.path
            for change in self.changes
            if change.what in {ChangeEffect.CREATED, ChangeEffect.DELETED}
        }
        return tuple(
            change.path for change in self.changes if change.path not in above & appeared_or_vanished
        )


def classify(found: Iterable[Difference], contents: Contents) -> dict[str, ForeignChange | None]:
    """Find out what happened to each path; None if only the system touched it."""
    differences = list(found)
    alike = {each.path: each.after for each in differences if each.after and _needs_comparison(each)}
    changed = {
        path
        for path, belongs in contents.originals(alike)
        if belongs is None or belongs != _read(contents.top / path, alike[path])
    }
    return {each.path: _judged(each, changed=each.path in changed) for each in differences}


def _judged(difference: Difference, *, changed: bool) -> ForeignChange | None:
    before, after = difference.before, difference.after
    what: ChangeEffect | None
    if before is None:
        what = ChangeEffect.CREATED
    elif after is None:
        what = ChangeEffect.DELETED
    elif changed or _of_another_kind(before, after) or before.size != after.size:
        what = ChangeEffect.CHANGED
    else:
        what = _aspect(before, after)
    if what is None:
        return None
    return ForeignChange(path=difference.path, what=what, before=before, after=after)


def _needs_comparison(difference: Difference) -> bool:
    """Return whether only a comparison of the content shows if an entry was changed."""
    before, after = difference.before, difference.after
    if before is None or after is None or _of_another_kind(before, after) or before.size != after.size:
        return False
    return after.is_file or after.is_link


def _of_another_kind(before: Fingerprint, after: Fingerprint) -> bool:
    return stat.S_IFMT(before.mode) != stat.S_IFMT(after.mode)


def _aspect(before: Fingerprint, after: Fingerprint) -> ChangeEffect | None:
    """Return what changed about an entry whose content is the same."""
    if before.nlink < after.nlink:
        return ChangeEffect.LINKED
    if before.mode != after.mode:
        return ChangeEffect.MODE
    return ChangeEffect.TIMES if before.mtime_ns != after.mtime_ns else None


def _read(place: Path, fingerprint: Fingerprint) -> bytes | None:
    try:
        return os.fsencode(place.readlink()) if fingerprint.is_link else place.read_bytes()
    except OSError:
        return None


def quarantine_changes(
    repository: Repository,
    source: Path,
    changes: Sequence[ForeignChange],
    *,
    run_id: str,
    story_ids: tuple[str, ...],
    date: float,
) -> Quarantine:
    """Keep changes under a new ref; `source` holds the written files, unless they are stored already.

    A blob that cannot be read back is an error: git refuses to build a tree with it, so no ref is made.
    """
    stored = _stored(repository, source, changes)
    manifest = {
        "schema": 1,
        "run_id": run_id,
        "story_ids": list(story_ids),
        "changes": [to_json(change) for change in stored],
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=True).encode()
    entries = {MANIFEST: ("100644", store_texts(repository, {MANIFEST: text})[MANIFEST])}
    for change in stored:
        if change.blob is not None and change.after is not None:
            entries[f"{FILES}/{_escaped(change.path)}"] = (_git_mode(change.after), change.blob)
    tree = _tree(repository, entries)
    who = " or ".join(story_ids)
    message = f"Written outside its claim by {who}\n\nAutopilot-Run: {run_id}\n"
    message += "".join(f"Autopilot-Story: {story_id}\n" for story_id in story_ids)
    commit = commit_tree(repository, tree, (), message, date)
    ref = _make_ref(repository, f"{REFS}{run_id}/{story_ids[0]}", commit)
    return Quarantine(ref=ref, run_id=run_id, story_ids=story_ids, changes=stored)


def _stored(
    repository: Repository, source: Path, changes: Sequence[ForeignChange]
) -> tuple[ForeignChange, ...]:
    written = {
        change.path: change.after
        for change in changes
        if change.needs_content and change.after and not change.blob
    }
    blobs = store(repository, source, [path for path, fingerprint in written.items() if fingerprint.is_file])
    # Links are stored as their target: `git hash-object` would read the file that they lead to.
    targets = {
        path: _read(source / path, fingerprint)
        for path, fingerprint in written.items()
        if fingerprint.is_link
    }
    blobs |= store_texts(repository, {path: text for path, text in targets.items() if text is not None})
    return tuple(replace(change, blob=change.blob or blobs.get(change.path)) for change in changes)


def _tree(repository: Repository, entries: Mapping[str, tuple[str, str]]) -> str:
    """Build a tree from blobs, folder by folder, without an index."""
    folders: dict[str, list[tuple[str, str, str]]] = {"": []}
    for path, (mode, blob) in sorted(entries.items()):
        folder, _, name = path.rpartition("/")
        parts = folder.split("/") if folder else []
        for depth in range(len(parts)):
            folders.setdefault("/".join(parts[: depth + 1]), [])
        folders[folder].append((mode, blob, name))
    for folder in sorted(folders, key=lambda path: path.count("/") if path else -1, reverse=True):
        lines = "".join(
            f"{mode} {'tree' if mode == '040000' else 'blob'} {blob}\t{name}\0"
            for mode, blob, name in folders[folder]
        )
        made = repository.run("mktree", "-z", stdin=lines.encode(errors="surrogateescape")).stdout.strip()
        if not folder:
            return made
        above, _, name = folder.rpartition("/")
        folders[above].append(("040000", made, name))
    raise AssertionError("unreachable")


def _make_ref(repository: Repository, prefix: str, commit: str) -> str:
    """Make the next free ref; an existing one is never moved."""
    taken = set(repository.run("for-each-ref", "--format=%(refname)", f"{prefix}/").stdout.split())
    number = 1
    while f"{prefix}/{number}" in taken:
        number += 1
    # The zeros demand that the ref does not exist: another run cannot be overwritten.
    repository.run("update-ref", f"{prefix}/{number}", commit, "0" * len(commit))
    return f"{prefix}/{number}"


def undo_changes(contents: Contents, changes: Iterable[ForeignChange]) -> tuple[str, ...]:
    """Undo kept changes in the tree; return the paths that had to stay as they are."""
    top, waiting = contents.top, sorted(changes, key=lambda each: each.path)
    removed_links: Counter[int] = Counter()
    # First remove what was added, the deepest first; then restore what was there before, folders first.
    new = [change for change in reversed(waiting) if _is_new(change)]
    stayed = {change.path for change in new if not _remove(top / change.path, change, removed_links)}
    old = [
        change for change in waiting if change.what is not ChangeEffect.CREATED and change.path not in stayed
    ]
    plain = [change for change in old if not _needs_original(change)]
    stayed |= {change.path for change in plain if not _restore(top, change, None, removed_links)}
    others = {change.path: change for change in old if _needs_original(change)}
    for path, belongs in contents.originals(others):
        if not _restore(top, others[path], belongs, removed_links):
            stayed.add(path)
    return tuple(sorted(stayed))


def _is_new(change: ForeignChange) -> bool:
    """Return whether what is at the path must be removed before the original can be restored."""
    if change.what is ChangeEffect.CREATED:
        return True
    before, after = change.before, change.after
    return change.what is ChangeEffect.CHANGED and bool(before and after and _of_another_kind(before, after))


def _needs_original(change: ForeignChange) -> bool:
    if change.before is None or change.before.is_folder:
        return False
    return change.what in {ChangeEffect.CHANGED, ChangeEffect.DELETED, ChangeEffect.LINKED}


def _remove(place: Path, change: ForeignChange, removed_links: Counter[int]) -> bool:
    now = fingerprint_of(place)
    if now is None:
        return True
    if not _is_same(now, change.after, removed_links) or (
        change.blob is None and (now.is_file or now.is_link)
    ):
        return False  # it has changed again, or could not be kept
    try:
        place.rmdir() if now.is_folder else place.unlink()
    except OSError:
        return False
    removed_links[now.inode] += now.is_file
    return True


def _is_same(now: Fingerprint, after: Fingerprint | None, removed_links: Counter[int]) -> bool:
    """Compare, knowing that removing another hard link of a file changes its fingerprint."""
    if after is not None and now.is_file and removed_links[now.inode]:
        left = after.nlink - removed_links[now.inode]
        return now == after._replace(ctime_ns=now.ctime_ns, nlink=left)
    return now == after


def _restore(top: Path, change: ForeignChange, belongs: bytes | None, removed_links: Counter[int]) -> bool:
    """Undo one change, unless the path has changed again; `belongs` is the original content, if needed."""
    place, before = top / change.path, change.before
    # Through a link among its folders the write could leave the tree.
    if before is None or Path(os.path.realpath(place.parent)) != place.parent:
        return False
    now = fingerprint_of(place)
    if now is not None and not _is_same(now, change.after, removed_links):
        return False
    try:
        if not _needs_original(change) or (
            change.what is ChangeEffect.LINKED and now and now.nlink == before.nlink
        ):
            return _restore_attributes_or_folder(place, change.what, before, now)
        if belongs is None or not (now is None or _may_be_replaced(change)):
            return False
        _write(top, place, before, belongs, free=now is None)
    except OSError:
        return False
    removed_links[now.inode if now else 0] += 1
    return True


def _may_be_replaced(change: ForeignChange) -> bool:
    """Return whether replacing what is there loses nothing: it is kept, or only another hard link.

    A copy separates a file from a hard link that a story may own. A file that had several links before is
    left as it is, since they belong together.
    """
    if change.what is ChangeEffect.LINKED:
        return change.before is not None and change.before.nlink == 1
    return change.blob is not None


def _restore_attributes_or_folder(
    place: Path, what: ChangeEffect, before: Fingerprint, now: Fingerprint | None
) -> bool:
    """Restore an entry's mode and times; a deleted folder is made again."""
    if what is ChangeEffect.DELETED or (before.is_folder and what is ChangeEffect.CHANGED):
        place.mkdir()
        return _restore_attributes(place, before)
    return now is not None and _restore_attributes(place, before)


def _write(top: Path, place: Path, before: Fingerprint, belongs: bytes, *, free: bool) -> None:
    """Write the original content of a path in one step; if it was `free`, only while it still is."""
    # Written aside on the same file system, then moved: a crash leaves the old file or the new one.
    aside = top / EXCHANGE / f"back-{os.getpid()}"
    for folder in (aside.parent, place.parent):
        folder.mkdir(parents=True, exist_ok=True)
    aside.unlink(missing_ok=True)
    if before.is_link:
        aside.symlink_to(os.fsdecode(belongs))
    else:
        aside.write_bytes(belongs)
    _restore_attributes(aside, before)
    if free:
        os.link(aside, place, follow_symlinks=False)  # fails if the path was taken meanwhile
        aside.unlink()
    else:
        aside.replace(place)


def _restore_attributes(place: Path, before: Fingerprint) -> bool:
    """Restore an entry's mode and times."""
    if not before.is_link:
        place.chmod(stat.S_IMODE(before.mode))
    if not before.is_folder:
        os.utime(place, ns=(place.lstat().st_atime_ns, before.mtime_ns), follow_symlinks=False)
    return True


def _escaped(path: str) -> str:
    return "/".join(_ESCAPED if part.lower() == _DOT_GIT else part for part in path.split("/"))


def _git_mode(fingerprint: Fingerprint) -> str:
    if fingerprint.is_link:
        return "120000"
    return "100755" if fingerprint.mode & stat.S_IXUSR else "100644"


def to_json(change: ForeignChange) -> dict[str, Any]:
    """Return a change as the manifest stores it."""
    return {
        "path": change.path,
        "what": change.what.value,
        "before": list(change.before) if change.before else None,
        "after": list(change.after) if change.after else None,
        "blob": change.blob,
    }


def from_json(entry: Mapping[str, Any]) -> ForeignChange:
    """Read a change from a manifest."""
    return ForeignChange(
        path=str(entry["path"]),
        what=ChangeEffect(entry["what"]),
        before=Fingerprint(*entry["before"]) if entry["before"] else None,
        after=Fingerprint(*entry["after"]) if entry["after"] else None,
        blob=entry["blob"],
    )

"""Foreign changes: kept under a ref of their own, proven readable, and only then undone in the tree.

A quarantine is a commit without parents. `changes.json` in it lists every path with what happened to
it; `files/` holds what the story wrote, byte by byte. Refs are made once and never moved or deleted
here. Nothing is undone that has changed again since it was kept, nor what was not kept.
"""

import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from isolation.commits import commit_tree
from isolation.contents import Contents, store, store_bytes
from isolation.errors import RepositoryError
from isolation.owners import ancestors
from isolation.repository import Repository
from isolation.snapshot import Difference, Sign, sign_of

REFS = "refs/autopilot/quarantine/"
MANIFEST = "changes.json"
FILES = "files"
_DOT_GIT = ".git"
_ESCAPED = "dot-git"
"""What stands for `.git` within a quarantine, where git does not allow that name."""


class What(StrEnum):
    """What happened to a path."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    MODE = "mode changed"
    TIMES = "touched"
    LINKED = "hard-linked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """One change outside of a story's claim; `blob` is what was written, None where that is not kept."""

    path: str
    what: What
    before: Sign | None = None
    after: Sign | None = None
    blob: str | None = None

    @property
    def needs_content(self) -> bool:
        """Tell whether something was written that would be lost when the change is undone."""
        after = self.after
        return self.what in {What.CREATED, What.CHANGED} and after is not None and not after.is_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """What is kept under one ref. `story_ids` are all that may have done it."""

    ref: str
    run_id: str
    story_ids: tuple[str, ...]
    changes: tuple[Foreign, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that were changed; a folder counts only where nothing in it does."""
        above = {folder for change in self.changes for folder in ancestors(change.path)}
        came_or_went = {change.path for change in self.changes if change.what in {What.CREATED, What.DELETED}}
        return tuple(change.path for change in self.changes if change.path not in above & came_or_went)


def classify(difference: Difference, contents: Contents) -> Foreign | None:
    """Say what happened to a path; None when nothing did but that the system touched it."""
    before, after = difference.before, difference.after
    what: What | None
    if before is None:
        what = What.CREATED
    elif after is None:
        what = What.DELETED
    elif _content_differs(difference.path, before, after, contents):
        what = What.CHANGED
    else:
        what = _aspect(before, after)
    if what is None:
        return None
    return Foreign(path=difference.path, what=what, before=before, after=after)


def _aspect(before: Sign, after: Sign) -> What | None:
    """Tell what is different about an entry that still holds the same."""
    if before.mode != after.mode:
        return What.MODE
    if before.nlink < after.nlink:
        return What.LINKED
    return What.TIMES if before.mtime_ns != after.mtime_ns else None


def _content_differs(path: str, before: Sign, after: Sign, contents: Contents) -> bool:
    """Compare with what belongs there; what is not known counts as changed."""
    if stat.S_IFMT(before.mode) != stat.S_IFMT(after.mode) or before.size != after.size:
        return True
    if not (after.is_file or after.is_link):
        return False
    belongs = contents.original(path)
    return belongs is None or belongs != _read(contents.top / path, after)


def _read(place: Path, sign: Sign) -> bytes | None:
    try:
        return os.fsencode(place.readlink()) if sign.is_link else place.read_bytes()
    except OSError:
        return None


def keep(
    repository: Repository,
    source: Path,
    changes: Sequence[Foreign],
    *,
    run_id: str,
    story_ids: tuple[str, ...],
    date: float,
) -> Quarantine:
    """Keep changes under a new ref and prove that they can be read back; `source` holds the written files."""
    stored = _stored(repository, source, changes)
    manifest = {
        "schema": 1,
        "run_id": run_id,
        "story_ids": list(story_ids),
        "changes": [to_json(change) for change in stored],
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=True).encode()
    entries = {MANIFEST: ("100644", store_bytes(repository, text))}
    for change in stored:
        if change.blob is not None and change.after is not None:
            entries[f"{FILES}/{_escaped(change.path)}"] = (_git_mode(change.after), change.blob)
    tree = _tree(repository, entries)
    who = " or ".join(story_ids)
    message = f"Written outside its claim by {who}\n\nAutopilot-Run: {run_id}\n"
    message += "".join(f"Autopilot-Story: {story_id}\n" for story_id in story_ids)
    commit = commit_tree(repository, tree, (), message, date)
    _require_readable(repository, entries)
    ref = _make_ref(repository, f"{REFS}{run_id}/{story_ids[0]}", commit)
    return Quarantine(ref=ref, run_id=run_id, story_ids=story_ids, changes=stored)


def _stored(repository: Repository, source: Path, changes: Sequence[Foreign]) -> tuple[Foreign, ...]:
    written = {change.path: change.after for change in changes if change.needs_content and change.after}
    blobs = store(repository, source, [path for path, sign in written.items() if sign.is_file])
    for path, sign in written.items():
        if sign.is_link and (target := _read(source / path, sign)) is not None:
            blobs[path] = store_bytes(repository, target)
    return tuple(replace(change, blob=blobs.get(change.path)) for change in changes)


def _tree(repository: Repository, entries: Mapping[str, tuple[str, str]]) -> str:
    """Build a tree from blobs, folder by folder, without any index."""
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


def _require_readable(repository: Repository, entries: Mapping[str, tuple[str, str]]) -> None:
    blobs = "".join(f"{blob}\n" for _, blob in entries.values()).encode()
    answer = repository.run("cat-file", "--batch-check", stdin=blobs).stdout.splitlines()
    if any(line.endswith("missing") for line in answer) or len(answer) != len(entries):
        raise RepositoryError(
            "what was put into quarantine cannot be read back, so nothing is undone",
            hint="`git fsck` shows what is wrong with the repository",
        )


def _make_ref(repository: Repository, prefix: str, commit: str) -> str:
    """Make the next free ref; one that is there already is never moved."""
    taken = set(repository.run("for-each-ref", "--format=%(refname)", f"{prefix}/").stdout.split())
    number = 1
    while f"{prefix}/{number}" in taken:
        number += 1
    repository.run("update-ref", f"{prefix}/{number}", commit, "0" * len(commit))
    return f"{prefix}/{number}"


def put_back(contents: Contents, changes: Iterable[Foreign]) -> tuple[str, ...]:
    """Undo kept changes in the tree; gives back the paths that had to stay as they are."""
    top, waiting = contents.top, list(changes)
    # First away with what was put there, the deepest first; then back with what was there, folders first.
    new = [change for change in sorted(waiting, key=lambda each: each.path, reverse=True) if _is_new(change)]
    stayed = {change.path for change in new if not _take_away(top / change.path, change)}
    for change in sorted(waiting, key=lambda each: each.path):
        if change.what is not What.CREATED and change.path not in stayed and not _give_back(contents, change):
            stayed.add(change.path)
    return tuple(sorted(stayed))


def _is_new(change: Foreign) -> bool:
    """Tell whether what stands at the path must go before what belongs there can come back."""
    if change.what is What.CREATED:
        return True
    before, after = change.before, change.after
    changed_kind = before and after and stat.S_IFMT(before.mode) != stat.S_IFMT(after.mode)
    return change.what is What.CHANGED and bool(changed_kind)


def _take_away(place: Path, change: Foreign) -> bool:
    now = sign_of(place)
    if now is None:
        return True
    if now != change.after or (change.blob is None and (now.is_file or now.is_link)):
        return False  # it is something else by now, or could not be kept
    try:
        place.rmdir() if now.is_folder else place.unlink()
    except OSError:
        return False
    return True


def _give_back(contents: Contents, change: Foreign) -> bool:
    place, before = contents.top / change.path, change.before
    if before is None or Path(os.path.realpath(place.parent)) != place.parent:
        return False
    now = sign_of(place)
    if now not in {change.after, None}:
        return False
    try:
        match change.what:
            case What.MODE | What.TIMES:
                return now is not None and _dress(place, before)
            case What.LINKED:
                return False  # the other name of the file is not known
            case _:
                return _restore(contents, change, before, now)
    except OSError:
        return False


def _restore(contents: Contents, change: Foreign, before: Sign, now: Sign | None) -> bool:
    """Write what belongs at a path; over something else only if that is kept."""
    place = contents.top / change.path
    if before.is_folder:
        place.mkdir()
        return _dress(place, before)
    belongs = contents.original(change.path)
    if belongs is None or (now is not None and change.blob is None):
        return False
    aside = contents.top / ".orchestrator" / f"back-{os.getpid()}"
    for folder in (aside.parent, place.parent):
        folder.mkdir(parents=True, exist_ok=True)
    aside.unlink(missing_ok=True)
    if before.is_link:
        aside.symlink_to(os.fsdecode(belongs))
    else:
        aside.write_bytes(belongs)
    _dress(aside, before)
    if now is None:
        os.link(aside, place, follow_symlinks=False)  # fails where somebody was faster
        aside.unlink()
    else:
        aside.replace(place)
    return True


def _dress(place: Path, before: Sign) -> bool:
    """Give an entry its mode and times back."""
    if not before.is_link:
        place.chmod(stat.S_IMODE(before.mode))
    if not before.is_folder:
        os.utime(place, ns=(place.lstat().st_atime_ns, before.mtime_ns), follow_symlinks=False)
    return True


def _escaped(path: str) -> str:
    return "/".join(_ESCAPED if part.lower() == _DOT_GIT else part for part in path.split("/"))


def _git_mode(sign: Sign) -> str:
    if sign.is_link:
        return "120000"
    return "100755" if sign.mode & stat.S_IXUSR else "100644"


def to_json(change: Foreign) -> dict[str, Any]:
    """Give a change as the manifest keeps it."""
    return {
        "path": change.path,
        "what": change.what.value,
        "before": list(change.before) if change.before else None,
        "after": list(change.after) if change.after else None,
        "blob": change.blob,
    }


def from_json(entry: Mapping[str, Any]) -> Foreign:
    """Read a change of a manifest."""
    return Foreign(
        path=str(entry["path"]),
        what=What(entry["what"]),
        before=Sign(*entry["before"]) if entry["before"] else None,
        after=Sign(*entry["after"]) if entry["after"] else None,
        blob=entry["blob"],
    )

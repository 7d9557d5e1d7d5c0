"""Foreign changes: kept under a ref of their own, proven readable, and only then undone in the tree.

A quarantine is a commit without parents. `changes.json` in it lists every path with what happened to
it; `files/` holds what the story wrote, byte by byte. Refs are made once and never moved or deleted
here. Nothing is undone that has changed again since it was kept, nor what was not kept.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from isolation.claims.owners import ancestors
from isolation.frozen import frozen
from isolation.git.commits import commit_tree
from isolation.git.repository import Repository
from isolation.paths import EXCHANGE
from isolation.shared_tree.contents import Contents, store, store_texts
from isolation.shared_tree.snapshot import Difference, Sign, sign_of

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


@frozen
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


@frozen
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


def classify(found: Iterable[Difference], contents: Contents) -> dict[str, Foreign | None]:
    """Say what happened to each path; None where nothing did but that the system touched it."""
    differences = list(found)
    alike = {each.path: each.after for each in differences if each.after and _may_hold_the_same(each)}
    changed = {
        path
        for path, belongs in contents.originals(alike)
        if belongs is None or belongs != _read(contents.top / path, alike[path])
    }
    return {each.path: _judged(each, changed=each.path in changed) for each in differences}


def _judged(difference: Difference, *, changed: bool) -> Foreign | None:
    before, after = difference.before, difference.after
    what: What | None
    if before is None:
        what = What.CREATED
    elif after is None:
        what = What.DELETED
    elif changed or _of_another_kind(before, after) or before.size != after.size:
        what = What.CHANGED
    else:
        what = _aspect(before, after)
    if what is None:
        return None
    return Foreign(path=difference.path, what=what, before=before, after=after)


def _may_hold_the_same(difference: Difference) -> bool:
    """Tell whether only the content can say if an entry was changed."""
    before, after = difference.before, difference.after
    if before is None or after is None or _of_another_kind(before, after) or before.size != after.size:
        return False
    return after.is_file or after.is_link


def _of_another_kind(before: Sign, after: Sign) -> bool:
    return stat.S_IFMT(before.mode) != stat.S_IFMT(after.mode)


def _aspect(before: Sign, after: Sign) -> What | None:
    """Tell what is different about an entry that still holds the same."""
    if before.nlink < after.nlink:
        return What.LINKED
    if before.mode != after.mode:
        return What.MODE
    return What.TIMES if before.mtime_ns != after.mtime_ns else None


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
    """Keep changes under a new ref; `source` holds the written files.

    What the store does not give back is an error: git builds no tree of it, and so there is no ref.
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


def _stored(repository: Repository, source: Path, changes: Sequence[Foreign]) -> tuple[Foreign, ...]:
    written = {change.path: change.after for change in changes if change.needs_content and change.after}
    blobs = store(repository, source, [path for path, sign in written.items() if sign.is_file])
    targets = {path: _read(source / path, sign) for path, sign in written.items() if sign.is_link}
    blobs |= store_texts(repository, {path: text for path, text in targets.items() if text is not None})
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
    top, waiting = contents.top, sorted(changes, key=lambda each: each.path)
    names_gone: Counter[int] = Counter()
    # First away with what was put there, the deepest first; then back with what was there, folders first.
    new = [change for change in reversed(waiting) if _is_new(change)]
    stayed = {change.path for change in new if not _take_away(top / change.path, change, names_gone)}
    old = [change for change in waiting if change.what is not What.CREATED and change.path not in stayed]
    plain = [change for change in old if not _needs_original(change)]
    stayed |= {change.path for change in plain if not _give_back(top, change, None, names_gone)}
    others = {change.path: change for change in old if _needs_original(change)}
    for path, belongs in contents.originals(others):
        if not _give_back(top, others[path], belongs, names_gone):
            stayed.add(path)
    return tuple(sorted(stayed))


def _is_new(change: Foreign) -> bool:
    """Tell whether what stands at the path must go before what belongs there can come back."""
    if change.what is What.CREATED:
        return True
    before, after = change.before, change.after
    return change.what is What.CHANGED and bool(before and after and _of_another_kind(before, after))


def _needs_original(change: Foreign) -> bool:
    if change.before is None or change.before.is_folder:
        return False
    return change.what in {What.CHANGED, What.DELETED, What.LINKED}


def _take_away(place: Path, change: Foreign, names_gone: Counter[int]) -> bool:
    now = sign_of(place)
    if now is None:
        return True
    if not _is_same(now, change.after, names_gone) or (change.blob is None and (now.is_file or now.is_link)):
        return False  # it is something else by now, or could not be kept
    try:
        place.rmdir() if now.is_folder else place.unlink()
    except OSError:
        return False
    names_gone[now.inode] += now.is_file
    return True


def _is_same(now: Sign, after: Sign | None, names_gone: Counter[int]) -> bool:
    """Compare, knowing that a file's sign changes when another name of it is taken away."""
    if after is not None and now.is_file and names_gone[now.inode]:
        left = after.nlink - names_gone[now.inode]
        return now == after._replace(ctime_ns=now.ctime_ns, nlink=left)
    return now == after


def _give_back(top: Path, change: Foreign, belongs: bytes | None, names_gone: Counter[int]) -> bool:
    """Undo one change, unless the path has changed again; `belongs` is what stood there, where needed."""
    place, before = top / change.path, change.before
    if before is None or Path(os.path.realpath(place.parent)) != place.parent:
        return False
    now = sign_of(place)
    if now is not None and not _is_same(now, change.after, names_gone):
        return False
    try:
        if not _needs_original(change) or (change.what is What.LINKED and now and now.nlink == before.nlink):
            return _dress_or_make(place, change.what, before, now)
        if belongs is None or not (now is None or _may_be_replaced(change)):
            return False
        _write(top, place, before, belongs, free=now is None)
    except OSError:
        return False
    names_gone[now.inode if now else 0] += 1
    return True


def _may_be_replaced(change: Foreign) -> bool:
    """Tell whether nothing is lost with what stands there: it is kept, or nothing but a further name.

    A copy parts a file from its further name, which a story may have for its own. A file that had several
    names before is left as it is, since they belong together.
    """
    if change.what is What.LINKED:
        return change.before is not None and change.before.nlink == 1
    return change.blob is not None


def _dress_or_make(place: Path, what: What, before: Sign, now: Sign | None) -> bool:
    """Give an entry its looks back; a folder that is gone is made again."""
    if what is What.DELETED or (before.is_folder and what is What.CHANGED):
        place.mkdir()
        return _dress(place, before)
    return now is not None and _dress(place, before)


def _write(top: Path, place: Path, before: Sign, belongs: bytes, *, free: bool) -> None:
    """Write what belongs at a path in one step; where it was `free`, only if it still is."""
    aside = top / EXCHANGE / f"back-{os.getpid()}"
    for folder in (aside.parent, place.parent):
        folder.mkdir(parents=True, exist_ok=True)
    aside.unlink(missing_ok=True)
    if before.is_link:
        aside.symlink_to(os.fsdecode(belongs))
    else:
        aside.write_bytes(belongs)
    _dress(aside, before)
    if free:
        os.link(aside, place, follow_symlinks=False)  # fails where somebody was faster
        aside.unlink()
    else:
        aside.replace(place)


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

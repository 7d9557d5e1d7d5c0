"""Task and epic files in a workspace: read, marked, renamed after their work items.

Sessions write these files, so links are not followed: neither what is sent to a tracker nor what is changed
may lie outside of the workspace.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from isolation.files.disk import replace_file
from isolation.files.plain import read_plain
from runner.core.errors import SystemFaultError
from runner.core.work_items.documents import Kind, WorkItem, marked, read_items, renamed, with_references

_MOST = 4 << 20


def load_items(workspace: Path, files: Iterable[Path]) -> tuple[WorkItem, ...]:
    """Read the work items of files below a workspace, in the order of the files. Blocks."""
    top = workspace.resolve()
    texts = {}
    for path in files:
        text = _text(path, top)
        if text is not None:
            texts[path.resolve().relative_to(top).as_posix()] = text
    return read_items(texts)


def _text(path: Path, top: Path) -> str | None:
    """Return a plain file below `top` as text; None if it is anything else."""
    try:
        place = path.parent.resolve() / path.name
        if not place.is_relative_to(top):
            return None
        return read_plain(place, _MOST, follow=False).decode("utf-8", "surrogateescape")
    except OSError:
        return None


def mark_pending(files: Iterable[Path]) -> tuple[Path, ...]:
    """Put the pending marker below the heading of items without a tracker line; return the changed files."""
    return tuple(path for path in files if _mark(path, path.name, {}))


def _mark(path: Path, name: str, ids: Mapping[str, str]) -> bool:
    try:
        if path.is_symlink():
            return False
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        changed = marked(text, name, ids)
        if changed == text:
            return False
        _save(path, changed)
    except OSError as error:
        raise _refused(path, error) from error
    return True


def _save(path: Path, text: str) -> None:
    replace_file(path, text.encode("utf-8", "surrogateescape"), mode=path.stat().st_mode & 0o777)


def write_ids(workspace: Path, docs: str, items: Iterable[WorkItem], ids: Mapping[str, str]) -> bool:
    """Write ids into the files of items, name task files after them, and follow in all other documents.

    Repeated after a crash it completes what is left: names change last. Returns whether anything changed.
    """
    known = [(item, item.id or ids.get(item.key, "")) for item in items]
    kept = [(item, item_id) for item, item_id in known if item_id]
    by_key = {item.key: item_id for item, item_id in kept}
    changed = [_mark(workspace / path, path, by_key) for path in {item.path: None for item, _ in kept}]
    moves = [
        (item, item_id)
        for item, item_id in kept
        if item.kind is Kind.TASK
        and renamed(item, item_id) != item.path
        and not (workspace / renamed(item, item_id)).exists()
    ]
    if moves:
        _follow(workspace, docs, moves)
    for item, item_id in moves:
        old, new = workspace / item.path, workspace / renamed(item, item_id)
        try:
            old.rename(new)
        except OSError as error:
            raise _refused(old, error) from error
    return any(changed) or bool(moves)


def _follow(workspace: Path, docs: str, moves: list[tuple[WorkItem, str]]) -> None:
    """Let the documents of the story call the task files by their new names."""
    top = workspace.resolve()
    for path in sorted((workspace / docs).rglob("*.md")):
        if path.name.startswith("_") or path.is_symlink():
            continue  # a state file is the runner's own, and keeps what was decided in its words
        text = _text(path, top)
        if text is None:
            continue
        changed = with_references(text, path.relative_to(workspace).as_posix(), moves)
        if changed != text:
            try:
                _save(path, changed)
            except OSError as error:
                raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> SystemFaultError:
    return SystemFaultError(
        f"{path} cannot be written: {error.strerror or error}", hint="check the disk and its permissions."
    )

"""What a power failure leaves of worktrees: files of git's that are empty.

A worktree is on the disk before a session works in it, so one whose own files are empty holds no work of a
session. It is set aside all the same, never deleted, and made again.
"""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from isolation.git.checkout import worktree_of
from isolation.git.registrations import removed_entries
from isolation.git.repository import Repository

_POINTERS = ("gitdir", "commondir", "HEAD")


def set_aside_torn(repository: Repository, path: Path) -> None:
    """Set a worktree aside whose registration was cut off. The caller holds the metadata lock."""
    entries = repository.common_dir / "worktrees"
    numbered = re.compile(rf"{re.escape(path.name)}\d*")  # as git names them
    with suppress(FileNotFoundError):
        for entry in [each for each in entries.iterdir() if numbered.fullmatch(each.name)]:
            belongs = _is_empty(entry / "gitdir") or worktree_of(entry) == path
            if belongs and any(_is_empty(entry / name) for name in _POINTERS):
                trash = removed_entries(repository)
                trash.mkdir(parents=True, exist_ok=True)
                entry.rename(trash / f"{entry.name}-{secrets.token_hex(6)}")
                _set_aside(path)
    if _is_empty(path / ".git"):
        _set_aside(path)


def _set_aside(path: Path) -> None:
    if os.path.lexists(path):
        path.rename(path.with_name(f"{path.name}.torn-{secrets.token_hex(3)}"))


def _is_empty(file: Path) -> bool:
    """Whether a file is there and has nothing in it."""
    try:
        return file.is_file() and file.stat().st_size == 0
    except OSError:
        return False

"""Whether anything in a workspace changed recently: files, folders, and its git metadata."""

import os
from pathlib import Path

from isolation.paths import own_git_dir

MOST_ENTRIES = 200_000
"""How many entries are checked before the answer is no: the check must stay cheap."""


def changed_since(workspace: Path, since: float) -> bool:
    """Return whether something was written, added or removed after `since`, commits included. Blocking."""
    git_dir = own_git_dir(workspace)
    kept = [git_dir / name for name in ("index", "HEAD", "logs/HEAD", "COMMIT_EDITMSG")] if git_dir else []
    if any(_newer(path, since) for path in kept):
        return True
    pending, left = [str(workspace)], MOST_ENTRIES
    while pending and left > 0:
        folder = pending.pop()
        if _newer(Path(folder), since):
            return True
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if entry.name == ".git":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.stat(follow_symlinks=False).st_mtime > since:
                        return True
        except OSError:
            continue  # it is being removed at this moment
    return False


def _newer(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime > since
    except OSError:
        return False

"""What refuses a worktree before it is made, and what a killed creation left in its place.

Only what can hold no work is removed; everything else is the user's to look at.
"""

import os
from pathlib import Path

from isolation.errors import WorkspaceError
from isolation.files.lookups import is_link
from isolation.git.branches import require_branch_name
from isolation.git.registrations import Registration
from isolation.git.repository import Repository
from isolation.model import WorkspaceRequest
from isolation.paths import require_component


def require_sane(repository: Repository, request: WorkspaceRequest) -> None:
    """Refuse, before anything is written, what could lead out of the story's own folder."""
    require_component(request.story_id, "story id")
    require_component(request.run_id, "run id")
    require_component(request.path.name, "worktree folder")
    require_branch_name(request.branch)
    root, path = request.path.parent, f"{request.path}"
    if os.path.realpath(root) != f"{root}" or is_link(path):
        link = request.path if is_link(path) else root
        raise WorkspaceError(
            f"{link} is a symbolic link that leads to {os.path.realpath(link)}",
            hint="move it away, or set another worktree root",
        )
    for inside in (repository.common_dir, repository.main_checkout):
        if inside is not None and request.path.is_relative_to(inside):
            raise WorkspaceError(
                f"{request.path} lies inside {inside}, where a worktree would show up as files of it",
                hint="set a worktree root outside the repository",
            )


def require_outside(path: Path, entries: tuple[Registration, ...]) -> None:
    """Refuse a path inside another worktree."""
    inside = f"{path}"
    for entry in entries:
        if inside.startswith(f"{entry.path}/"):  # as text, since there are many
            raise WorkspaceError(
                f"{path} lies inside the worktree {entry.path}",
                hint="set a worktree root outside the repository's worktrees",
            )


def require_free_path(repository: Repository, path: Path) -> None:
    """Refuse a path with content that git does not know; an empty folder is fine."""
    if not os.path.lexists(path):
        return
    if path.is_dir():
        _drop_dead_pointer(repository, path)
        if not any(path.iterdir()):
            return
    raise WorkspaceError(
        f"{path} exists and is not a worktree of this repository",
        hint="move it away, then run again; it is never deleted",
    )


def _drop_dead_pointer(repository: Repository, path: Path) -> None:
    """Empty a folder that holds only the `.git` file of a creation that was killed halfway."""
    pointer = path / ".git"
    if [entry.name for entry in path.iterdir()] != [".git"] or not pointer.is_file():
        return
    git_dir = Path(os.fsdecode(pointer.read_bytes()).removeprefix("gitdir:").strip())
    if git_dir.parent == repository.common_dir / "worktrees" and not (git_dir / "index").exists():
        pointer.unlink()


def clear_incomplete(repository: Repository, here: Registration) -> bool:
    """Undo a registration that was killed before it had a HEAD; it can hold no work."""
    if here.is_incomplete and here.path.is_dir():
        _drop_dead_pointer(repository, here.path)
        if not any(here.path.iterdir()):
            here.path.rmdir()
            return True
    return False

"""Which folders the worktree of a story holds, and what of that cannot be or surprises."""

from collections.abc import Sequence

from isolation.claims import globs as claims
from isolation.claims.owners import roots
from isolation.git.repository import Repository
from isolation.model import IsolationMode
from isolation.worktree.sparse import absent_folders, require_possible
from runner.core.flow import QUICK, docs_folder
from runner.core.model import Story
from runner.core.settings import Settings

OWNS = "owns"


def sparse_folders(story: Story, settings: Settings) -> tuple[str, ...] | None:
    """Return the only folders, or files, that a story's worktree holds; None if it is to hold everything."""
    folders = settings.sparse_paths
    if settings.sparse == OWNS:
        owned = roots(claims.compile(story.owns)) if story.owns else ()
        if not owned:  # nothing, or something in any folder
            return None
        folders += owned
    if not folders:
        return None
    # The runner itself reads and writes there.
    docs = (docs_folder(settings.docs_folder, story.id),) if story.flow != QUICK.name else ()
    return tuple(dict.fromkeys((*folders, *docs)))


def sparse_notes(
    repository: Repository, base: str, stories: Sequence[Story], settings: Settings
) -> tuple[str, ...]:
    """Return notes about missing folders and settings without effect; raise if no worktree can be sparse."""
    if not settings.sparse_paths and settings.sparse != OWNS:
        return ()
    if settings.bg_isolation != IsolationMode.WORKTREE:
        return ("sparse-paths and sparse are for worktrees: they change nothing in a shared tree",)
    require_possible(repository)
    absent = absent_folders(repository, base, settings.sparse_paths)
    notes = [f"sparse-paths: {folder} is not in {settings.base}, so it brings nothing" for folder in absent]
    full = [story.id for story in stories if sparse_folders(story, settings) is None]
    if full:
        notes.append(
            f"sparse owns: {', '.join(full)} gets a full worktree, since what it owns names no folder"
        )
    return tuple(notes)


def all_sparse(stories: Sequence[Story], settings: Settings) -> bool:
    """Whether no story of a run gets a full worktree."""
    return all(sparse_folders(story, settings) is not None for story in stories)

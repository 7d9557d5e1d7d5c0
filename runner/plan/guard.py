"""Whether the stories of a run are kept within their worktrees by the system, and by what."""

import threading
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from isolation.guard import READ_ONLY, for_worktree, supported, worktree_support
from isolation.model import Confinement, IsolationMode, Means, Workspace
from isolation.paths import RepositoryPaths
from runner.core.settings import Settings

LOST = "sessions can write into the main checkout and into each other's worktrees"


class Guarding(Struct, frozen=True, kw_only=True):
    """The write guard of a run; without means there is none, and `note` says why."""

    means: Means | None = None
    note: str = ""

    @property
    def enforcement(self) -> str:
        """Name the level, for plans and reports."""
        return "none" if self.means is None else READ_ONLY.level.value

    def around(
        self, workspace: Workspace, *, repository: Repository, root: Path, settings: Settings
    ) -> Confinement | None:
        """Give the confinement of a session in a worktree; `root` holds all of them. Blocking."""
        if self.means is None:
            return None
        shared = settings.symlink_directories
        return for_worktree(repository, workspace, means=self.means, root=root, shared=shared)


def ask_ahead(repository: Repository, settings: Settings) -> None:
    """Begin to ask machine and git what a run must know, beside whatever else comes before it.

    The answers are kept; whoever needs one that is not there yet waits for it.
    """
    guarded = settings.bg_isolation == IsolationMode.WORKTREE and settings.guard

    def ask() -> None:
        with suppress(OSError, IsolationError):  # whoever asks next hears of it
            _ = repository.has_identity
            if guarded:
                supported(READ_ONLY)

    threading.Thread(target=ask).start()


def guarding_of(paths: RepositoryPaths, settings: Settings, root: Path) -> Guarding:
    """Find out what guards a run with these settings; blocks for a moment at the first call."""
    if settings.bg_isolation != IsolationMode.WORKTREE:
        return Guarding()
    if not settings.guard:
        return Guarding(note=f"the write guard is switched off: {LOST}")
    support = worktree_support(paths.main_checkout or paths.common_dir, root)
    if support.means is None:
        return Guarding(note=f"there is no write guard here, so {LOST} ({support.reason})")
    return Guarding(means=support.means)

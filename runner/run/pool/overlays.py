"""Worktrees as layers over one checkout: whether a run gets them, and the mounts in which it sees them.

The mounts come first, while the program has one thread and has started nothing: all that the run starts must
be in them.
"""

import time
from pathlib import Path

from isolation.errors import LeaseHeldError, WorkspaceError
from isolation.files import lease
from isolation.git.repository import Repository
from isolation.model import IsolationMode, Means
from isolation.worktree.layers.lifting import make_plain
from isolation.worktree.layers.records import layer_at
from isolation.worktree.layers.seeing import HINT, enter, is_entered, see_layers, trial
from isolation.worktree.pool.bottoms import Bottoms, look_ahead
from runner.core.errors import SettingsError
from runner.core.settings import Settings
from runner.plan.guard import WriteGuard
from runner.plan.repositories.site import worktree_root_of

OVERLAY, AUTO = "overlay", "auto"
_POLL = 0.2


def prepare_overlays(repository: Repository, settings: Settings) -> str:
    """Move this process to where layers are visible, if the run wants some or finds some of an earlier run.

    Must be called with one thread. Return a note for the user, empty as a rule. Raises if what the settings
    ask for is not available.
    """
    if settings.workspace not in {OVERLAY, AUTO}:
        see_layers(repository.common_dir)
        return ""
    why = _obstacle(settings)
    if not why:
        try:
            enter(repository.common_dir)
        except WorkspaceError as error:
            why = error.message
    why = why or trial(worktree_root_of(repository, settings))
    if why and settings.workspace == OVERLAY:
        raise SettingsError(f"workspace 'overlay' is not available here: {why}", hint=f"{HINT}.")
    if why:
        see_layers(repository.common_dir)
        return f"stories get ordinary worktrees, since overlays are not available here: {why}"
    look_ahead(repository)
    return ""


def bottoms_of(
    repository: Repository, settings: Settings, root: Path, run_id: str, guard: WriteGuard
) -> Bottoms | None:
    """Return the checkouts that the worktrees of a run are laid over; None if they are made by checkouts."""
    if settings.workspace not in {OVERLAY, AUTO} or settings.bg_isolation != IsolationMode.WORKTREE:
        return None
    if is_entered(repository.common_dir) and guard.means is Means.MOUNTS and not _obstacle(settings):
        return Bottoms(repository=repository, root=root, run_id=run_id)
    if settings.workspace == OVERLAY:
        why = guard.note or "this process does not see overlays"
        raise SettingsError(f"workspace 'overlay' is not available here: {why}", hint=f"{HINT}.")
    return None


def _obstacle(settings: Settings) -> str:
    """Return which other setting rules overlays out; empty if none does."""
    if settings.bg_isolation != IsolationMode.WORKTREE:
        return "with bg-isolation 'none' stories have no worktrees"
    if not settings.guard:
        return "without the write guard a session could change the checkout that all stories lie over"
    return ""


def is_reachable(repository: Repository, folder: Path, *, patience: float = 0.0) -> bool:
    """Whether programs that we do not start see the files of a worktree.

    One that is a layer gets files of its own for that, unless a run is active; then, with patience, it is
    waited for that the run does it. Raises if that fails. Blocks.
    """
    deadline = time.monotonic() + patience
    while layer_at(repository.common_dir, folder) is not None:
        try:
            with lease.acquire(repository.common_dir, "open"):
                why = make_plain(repository, folder)
        except LeaseHeldError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL)
            continue
        if why:
            raise WorkspaceError(f"{folder} cannot be made an ordinary worktree: {why}", hint="run again")
    return True

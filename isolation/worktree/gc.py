"""What `gc` needs: every worktree of ours and every stray folder, each with a verdict and its reason.

The verdict follows the same rules as the end of a story, and `remove` applies them once more, so that
nothing that changed in between is lost.
"""

from pathlib import Path

from msgspec import Struct

from isolation.files import lease
from isolation.files.lease import holder_is_alive, read_holder
from isolation.git.checkout import admin_dir
from isolation.git.registrations import Registration, load_registrations
from isolation.git.repository import Repository, offload
from isolation.model import Closing
from isolation.paths import git_place
from isolation.worktree.earlier import EARLIER
from isolation.worktree.layers.records import BOTTOM_PREFIX, FOLDER, is_hidden, load_layers
from isolation.worktree.pool.bottoms import REASON as BOTTOM_REASON
from isolation.worktree.pool.bottoms import forget_bottom
from isolation.worktree.pool.making import retire
from isolation.worktree.pool.seals import PREFIX, REASON, claim_seal, forget
from isolation.worktree.removal import HIDDEN, TRASH, close_path, reason_to_keep, sweep_trash
from isolation.worktree.removed.undo import Undone, restore_last

BRANCHES = "autopilot/"


class WorktreeFinding(Struct, frozen=True, kw_only=True):
    """One folder below the worktree root, or one worktree of ours elsewhere."""

    path: Path
    branch: str | None
    run_id: str | None
    removable: bool
    reason: str
    spare: bool = False
    bottom: bool = False


async def survey(repository: Repository, root: Path) -> tuple[WorktreeFinding, ...]:
    """Judge everything that stories may have left; changes nothing."""
    return await offload(survey_root, repository, root)


async def remove(repository: Repository, finding: WorktreeFinding, batch: str = "") -> Closing:
    """Remove what was found removable, unless something speaks against it by now.

    What has the same `batch` is brought back together.
    """
    return await offload(_remove, repository, finding, batch)


def undo(repository: Repository) -> tuple[Undone, ...]:
    """Bring back the worktrees that were removed last, together. Blocks."""
    restored = restore_last(repository)
    for each in restored:
        if each.restored:  # what the pool knows is about a later worktree of that name
            forget(repository.common_dir, each.entry)
    return restored


def survey_root(repository: Repository, root: Path) -> tuple[WorktreeFinding, ...]:
    """Judge everything that stories may have left, blocking."""
    main, *entries = load_registrations(repository)
    live_run = _live_run(repository)
    ours = [entry for entry in entries if _is_ours(entry, root)]
    findings = [_judge(repository, entry, live_run) for entry in ours]
    known = {entry.path for entry in (main, *ours)}
    registered = {entry.path: entry for entry in entries}
    if root.is_dir():
        # Listed although they are never removed, so that the user sees why they stay.
        known |= {root / TRASH, root / EARLIER, root / FOLDER, git_place(root)}
        strays = (path for path in root.iterdir() if path not in known)
        findings += [_foreign(path, registered.get(path)) for path in strays]
    return tuple(sorted(findings, key=lambda finding: finding.path))


def _is_ours(entry: Registration, root: Path) -> bool:
    on_our_branch = (entry.branch or "").startswith(BRANCHES) and entry.path.is_relative_to(root)
    return entry.run_id is not None or on_our_branch or _is_spare(entry) or _is_bottom(entry)


def _is_spare(entry: Registration) -> bool:
    return entry.lock_reason == REASON and entry.path.name.startswith(PREFIX)


def _is_bottom(entry: Registration) -> bool:
    return entry.lock_reason == BOTTOM_REASON and entry.path.name.startswith(BOTTOM_PREFIX)


def _live_run(repository: Repository) -> str | None:
    holder = read_holder(repository.common_dir)
    return holder.run_id if holder and holder_is_alive(repository.common_dir) else None


def _judge(repository: Repository, entry: Registration, live_run: str | None) -> WorktreeFinding:
    if _is_spare(entry):
        return WorktreeFinding(
            path=entry.path,
            branch=entry.branch,
            run_id=None,
            removable=live_run is None,
            reason=f"a spare of run {live_run}"
            if live_run
            else "a spare, ready for a story; it holds no work",
            spare=True,
        )
    if _is_bottom(entry):
        return _judge_bottom(repository, entry, live_run)
    if live_run is not None and entry.run_id == live_run:
        reason = f"run {live_run} is using it"
    elif is_hidden(repository.common_dir, entry.path):
        reason = HIDDEN
    elif not entry.path.exists():
        reason = ""
    else:
        reason = reason_to_keep(repository, entry.path, entry.branch)
    gone = "its folder is gone" if not entry.path.exists() else "clean, and its commits are on a branch"
    return WorktreeFinding(
        path=entry.path,
        branch=entry.branch,
        run_id=entry.run_id,
        removable=not reason,
        reason=reason or gone,
    )


def _judge_bottom(repository: Repository, entry: Registration, live_run: str | None) -> WorktreeFinding:
    reason = f"the checkout below the stories of run {live_run}" if live_run else ""
    over = [
        Path(layer.path).name
        for layer in load_layers(repository.common_dir)
        if Path(layer.bottom) == entry.path
    ]
    reason = reason or (f"the worktree of {', '.join(over)} is a layer over it" if over else "")
    return WorktreeFinding(
        path=entry.path,
        branch=None,
        run_id=None,
        removable=not reason,
        reason=reason or "a checkout below stories, of which none needs it; it holds no work",
        bottom=True,
    )


def _foreign(path: Path, entry: Registration | None) -> WorktreeFinding:
    what = "a worktree that autopilot-multi did not make" if entry else "not a worktree of this repository"
    branch = entry.branch if entry else None
    return WorktreeFinding(path=path, branch=branch, run_id=None, removable=False, reason=what)


def _remove(repository: Repository, finding: WorktreeFinding, batch: str) -> Closing:
    if not finding.removable:
        return Closing(removed=False, reason=finding.reason)
    if finding.spare:
        return _remove_spare(repository, finding.path)
    if finding.bottom:
        return _remove_bottom(repository, finding.path)
    # A run may have begun to use it since the survey.
    if finding.run_id is not None and finding.run_id == _live_run(repository):
        return Closing(removed=False, reason=f"run {finding.run_id} is using it")
    return close_path(repository, finding.path, finding.branch, batch=batch)


def _remove_spare(repository: Repository, path: Path) -> Closing:
    git_dir = admin_dir(repository, path)
    # Who takes the seal has the spare: a run that begins now, or this call.
    ours = git_dir is not None and claim_seal(repository.common_dir, git_dir.name)
    live_run = _live_run(repository)
    if not ours and live_run is not None:
        return Closing(removed=False, reason=f"a spare of run {live_run}")
    retire(repository, path)
    sweep_trash(path.parent)
    removed = not path.exists()
    return Closing(removed=removed, reason="" if removed else "it could not be moved aside")


def _remove_bottom(repository: Repository, path: Path) -> Closing:
    with lease.acquire(repository.common_dir, "gc"):  # no run begins to use it meanwhile
        over = any(Path(layer.bottom) == path for layer in load_layers(repository.common_dir))
        if over:
            return Closing(removed=False, reason="the worktree of a story is a layer over it")
        forget_bottom(repository.common_dir, path)
        retire(repository, path)
        sweep_trash(path.parent)
    removed = not path.exists()
    return Closing(removed=removed, reason="" if removed else "it could not be moved aside")

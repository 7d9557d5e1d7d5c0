"""A worktree for a story: created, reused, or refused; never at the cost of existing work.

What changes shared metadata happens in one thread under the metadata lock; the checkout of files happens
outside it. Until the tree is verified, a failure or a cancellation undoes what this very call made, and
nothing else: a branch only while it still points where this call put it, a folder only while it holds only
what git checked out. The caller can undo the same later, as long as nothing has run there.
"""

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import GitCommandError, WorkspaceError
from isolation.files.deletion import delete_tree
from isolation.git.branches import (
    delete_branch,
    move_on,
    require_creatable,
    require_free_branch,
    start_of,
)
from isolation.git.checkout import admin_dir, index_identity, read_status
from isolation.git.commits import merge_parents, named, retried
from isolation.git.contained.object_store import take_over_left
from isolation.git.metadata_lock import metadata_lock
from isolation.git.registrations import Registration, clear_missing, load_registrations, lock_reason
from isolation.git.repository import GitOutput, Repository, failure, offload
from isolation.guard.submodules import settle_submodules
from isolation.model import Workspace, WorkspaceRequest
from isolation.patterns import pattern
from isolation.worktree.checkout_files import (
    BEHIND,
    Wish,
    asking,
    complete,
    holds_only_checkout,
    is_half_filled,
    not_registered,
    place_of_checkout,
    populate,
    require_complete,
    workers_of,
)
from isolation.worktree.layers.seeing import require_visible
from isolation.worktree.pool.bottoms import Bottoms
from isolation.worktree.pool.claim import Spare, attach
from isolation.worktree.pool.early import EarlyTree
from isolation.worktree.pool.pool import Pool
from isolation.worktree.power_loss import UNSETTLED, set_aside_torn, settle
from isolation.worktree.registering.draft import add_drafted, drafted, make_branch_ahead
from isolation.worktree.registering.refusals import (
    clear_incomplete,
    require_free_path,
    require_outside,
    require_sane,
)
from isolation.worktree.removal import discard
from isolation.worktree.sparse import make_sparse

if TYPE_CHECKING:
    import trio

_GRACE = 60.0
_ATTEMPTS = 4
_TRANSIENT = pattern(r"failed to read .*commondir|locked' for writing")


class _Registered(Struct, frozen=True, kw_only=True):
    """A registered worktree before its checkout, and what of it this call made."""

    base: str
    tip: str
    made_branch: bool = False
    made_tree: bool = False
    existed: bool = False
    half_filled: bool = False
    behind: bool = False
    spare: Spare | None = None
    workers: int = 1


class _Ready(Struct, frozen=True, kw_only=True):
    """A filled worktree: the identity of its index, and its mark if not all is on the disk."""

    index: tuple[int, ...]
    unsettled: Path | None


async def create_or_attach(
    repository: Repository,
    request: WorkspaceRequest,
    populate_limiter: "trio.CapacityLimiter",
    *,
    interrupted: bool = False,
    pool: Pool | None = None,
    bottoms: Bottoms | None = None,
) -> Workspace:
    """Return the story's worktree on the disk: a new one, one on its existing branch, or the one it had.

    `interrupted` means that an earlier creation began and did not end; an incomplete first checkout is
    recognized without it.
    """
    workspace, _ = await create_undoable(
        repository, request, populate_limiter, interrupted=interrupted, pool=pool, bottoms=bottoms
    )
    if workspace.unsettled is None:
        return workspace
    await offload(settle, workspace.path, workspace.unsettled)
    return replace(workspace, unsettled=None)


async def create_undoable(
    repository: Repository,
    request: WorkspaceRequest,
    populate_limiter: "trio.CapacityLimiter",
    *,
    interrupted: bool = False,
    pool: Pool | None = None,
    bottoms: Bottoms | None = None,
) -> tuple[Workspace, Callable[[], None]]:
    """Create or attach as `create_or_attach` does; also return what undoes it, which blocks.

    The files of a new checkout need not be on the disk yet: the caller has to `settle` it.
    With a `pool` a new worktree is one of its spares, if it has one; with `bottoms` it is a layer over one of
    these. A sparse one has nothing to do with either. A checkout behind which none waits uses all processors.
    """
    async with asking(populate_limiter) as wish:
        return await _create(
            repository,
            request,
            populate_limiter,
            wish,
            interrupted=interrupted,
            pool=pool,
            bottoms=bottoms,
        )


async def _create(
    repository: Repository,
    request: WorkspaceRequest,
    populate_limiter: "trio.CapacityLimiter",
    wish: Wish,
    *,
    interrupted: bool,
    pool: Pool | None,
    bottoms: Bottoms | None,
) -> tuple[Workspace, Callable[[], None]]:
    import trio

    spare, pool = None, pool if request.sparse is None else None
    if pool is not None and pool.has_spares:
        spare = await offload(pool.take, request, limiter=populate_limiter)
    below = None
    if bottoms is not None and request.sparse is None:
        below = await offload(bottoms.find, request, limiter=populate_limiter)
    try:
        registered, ready = await offload(_register_from, repository, request, interrupted, pool, spare)
    except GitCommandError as error:
        raise WorkspaceError(error.message, hint=error.hint) from error
    claimed, prepared = registered.spare, False
    if pool is not None and pool.preparation is not None and claimed is not None:
        prepared = await offload(pool.has_prepared, claimed, registered.tip)
    undo = partial(_roll_back, repository, request, registered)
    try:
        if bottoms is not None and below is not None and registered.made_tree:
            await offload(bottoms.lay, below, request.path, registered.tip)
            registered = replace(registered, spare=below)
        if ready is None:
            checks_out = claimed is None or not (claimed.early and claimed.is_ready_at(registered.tip))
            async with place_of_checkout(populate_limiter, wish, wanted=checks_out) as leave:
                registered = replace(registered, workers=workers_of(repository) if wish.is_last else 1)
                ready = await offload(_make_ready, repository, request, registered, pool, leave)
        await trio.lowlevel.checkpoint_if_cancelled()
    except BaseException as error:
        with trio.move_on_after(_GRACE, shield=True):
            await offload(undo)
        if isinstance(error, GitCommandError):
            raise WorkspaceError(error.message, hint=error.hint) from error
        raise
    workspace = Workspace(
        path=request.path,
        branch=request.branch,
        base=registered.base,
        head=registered.tip,
        reattached=registered.existed,
        prepared=prepared,
        index=ready.index,
        unsettled=ready.unsettled,
    )
    return workspace, undo


def require_there(repository: Repository, path: Path) -> None:
    """Refuse to work in a worktree that was removed: what a session wrote there would belong to no branch."""
    if admin_dir(repository, path) is not None:
        return
    if not path.exists():
        raise WorkspaceError(
            f"its worktree {path} is gone", hint="run again; it is recreated from its branch"
        )
    raise not_registered(path)


def _register_from(
    repository: Repository,
    request: WorkspaceRequest,
    interrupted: bool,  # noqa: FBT001  threads take positions
    pool: Pool | None,
    spare: Spare | None,
) -> tuple[_Registered, "_Ready | None"]:
    """Register a worktree, if it can be with a spare of the pool; one that it is not used goes back.

    If nothing has to be checked out, it is made ready at once: another thread would only be waited for.
    """
    if spare is None and pool is not None and pool.turnover is not None:
        spare = pool.take(request)
    early = pool.claim_early(request) if pool is not None and spare is None else None
    try:
        registered = _register(repository, request, interrupted, spare, early)
    finally:
        if early is not None and early.path.exists():
            early.drop()
        if pool is not None and spare is not None and spare.path.exists():
            pool.put_back(spare)
    claimed = registered.spare
    if claimed is None or not claimed.small or not claimed.is_ready_at(registered.tip):
        return registered, None
    try:
        return registered, _make_ready(repository, request, registered, pool, lambda: None)
    except BaseException:
        _roll_back(repository, request, registered)
        raise


def _register(
    repository: Repository,
    request: WorkspaceRequest,
    interrupted: bool,  # noqa: FBT001  threads take positions
    spare: Spare | None = None,
    early: EarlyTree | None = None,
) -> _Registered:
    require_sane(repository, request)
    require_visible(repository.common_dir, request.path)
    if request.needs_parents:
        take_over_left(repository.common_dir)
    # The merge makes only objects, so it needs no lock, however long it takes.
    base = merge_parents(repository, request.parents, _merge_message(request))
    # So does what waits for the disk, which other stories keep busy, or for git.
    has_branch = (spare or early) is not None and make_branch_ahead(repository, request, base)
    if early is not None:
        spare = early.made()
        if spare is None and has_branch:
            delete_branch(repository, request.branch, base)
            has_branch = False
    draft = drafted(repository, request, base) if spare is None else None
    try:
        with metadata_lock(repository.common_dir):
            set_aside_torn(repository, request.path)
            entries = load_registrations(repository, locks=False)
            require_outside(request.path, entries)
            here = _at(request.path, entries) and _at(request.path, load_registrations(repository))
            if here is not None and os.path.lexists(request.path) and not clear_incomplete(repository, here):
                return _adopt(repository, request, here, base, interrupted=interrupted)
            require_free_branch(request, entries)
            if here is not None:
                clear_missing(repository, request.path)
            else:
                require_free_path(repository, request.path)
            if spare is not None:
                return _claim(repository, request, base, spare, has_branch=has_branch)
            return _add(repository, request, base, draft)
    finally:
        if draft is not None and draft.exists():  # it was not used
            delete_tree(draft)
            delete_branch(repository, request.branch, base)
        if spare is not None and has_branch and spare.path.exists():
            delete_branch(repository, request.branch, base)


def _at(path: Path, entries: tuple[Registration, ...]) -> Registration | None:
    wanted = f"{path}"  # as text, since there are many
    return next((entry for entry in entries if f"{entry.path}" == wanted), None)


def _adopt(
    repository: Repository, request: WorkspaceRequest, here: Registration, base: str, *, interrupted: bool
) -> _Registered:
    """Reuse the worktree that the story already has, with the work that is in it."""
    if here.branch != request.branch:
        on = f"on branch {here.branch}" if here.branch else f"on no branch, at {here.head[:10]}"
        raise WorkspaceError(
            f"the worktree {here.path} is {on}, not on {request.branch}",
            hint=f"`git switch {request.branch}` there, or move it away with `git worktree move`",
        )
    reason = lock_reason(request.run_id, request.story_id)
    # The reason names the new run, so that `gc` knows that the worktree is in use.
    if here.lock_reason != reason:
        if here.lock_reason is not None:
            repository.run("worktree", "unlock", str(here.path))
        repository.run("worktree", "lock", "--reason", reason, str(here.path))
    settle_submodules(repository, here.path)  # a run that was killed in a session could not
    half_filled = interrupted or is_half_filled(repository, here.path)
    tip = repository.resolve(f"refs/heads/{request.branch}")
    target = _advanced(repository, request, tip, base)
    if target != tip and not request.needs_parents and read_status(repository, here.path).dirty:
        target = tip  # the uncommitted work began at the old base
    start = start_of(repository, base, target)
    return _Registered(base=start, tip=target, existed=True, half_filled=half_filled, behind=target != tip)


def _advanced(repository: Repository, request: WorkspaceRequest, tip: str, base: str) -> str:
    """Return the commit that a story's branch continues from.

    Without commits of its own that is the base; otherwise its tip, merged with the parents that it needs.
    """
    if tip == base or repository.is_ancestor(tip, base):
        return base
    if not request.needs_parents:
        return tip
    return merge_parents(repository, (tip, *request.parents), _merge_message(request))


def _merge_message(request: WorkspaceRequest) -> str:
    return f"Merge the dependencies of {request.story_id}"


def _add(repository: Repository, request: WorkspaceRequest, base: str, draft: Path | None) -> _Registered:
    """Register a worktree on a new branch at the base, or on the story's existing branch."""
    _make_root(request.path.parent)
    if draft is not None and add_drafted(repository, request, base, draft):
        return _Registered(base=base, tip=base, made_branch=True, made_tree=True)
    made = _try_to_add(repository, request, ("--no-track", "-b", request.branch, str(request.path), base))
    if made.returncode == 0:
        return _Registered(base=base, tip=base, made_branch=True, made_tree=True)
    before = repository.branch_tip(request.branch)
    if before is None:
        require_creatable(repository, request.branch)
        raise failure(("worktree", "add", str(request.path)), made)
    # A failed attempt may have left the new branch behind; only then is it ours to delete.
    ours = before == base and _TRANSIENT.search(made.stderr) is not None
    tip = _advanced(repository, request, before, base)
    move_on(repository, request.branch, before, tip)
    attached = _try_to_add(repository, request, (str(request.path), request.branch))
    if attached.returncode != 0:
        if ours:
            delete_branch(repository, request.branch, base)
        raise failure(("worktree", "add", str(request.path)), attached)
    start = start_of(repository, base, tip)
    return _Registered(base=start, tip=tip, made_branch=ours, made_tree=True, existed=not ours)


def _claim(
    repository: Repository, request: WorkspaceRequest, base: str, spare: Spare, *, has_branch: bool
) -> _Registered:
    """Make a spare the worktree of the story, on a new branch at the base, or on its existing branch."""
    before = None
    if not has_branch and (made := repository.make_branch(request.branch, base)).returncode:
        before = repository.branch_tip(request.branch)
        if before is None:
            require_creatable(repository, request.branch)
            raise failure(("branch", request.branch), made)
    tip = base if before is None else _advanced(repository, request, before, base)
    if before is not None:
        move_on(repository, request.branch, before, tip)
    if request.path.exists():  # empty, as was just checked
        request.path.rmdir()
    attach(repository, spare, request, tip)
    start = start_of(repository, base, tip)
    new = before is None
    return _Registered(base=start, tip=tip, made_branch=new, made_tree=True, existed=not new, spare=spare)


def _make_root(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        raise WorkspaceError(
            f"cannot create the folder for worktrees: {root}: {error.strerror}",
            hint="the setting `worktree-root` puts it elsewhere",
        ) from error


def _try_to_add(repository: Repository, request: WorkspaceRequest, what: tuple[str, ...]) -> GitOutput:
    """Ask git for the worktree; retry errors that are known to be transient."""
    reason = lock_reason(request.run_id, request.story_id)
    for attempt in range(_ATTEMPTS):
        output = repository.run(
            "worktree", "add", "--no-checkout", "--lock", "--reason", reason, *what, check=False
        )
        if output.returncode == 0 or attempt == _ATTEMPTS - 1 or not _TRANSIENT.search(output.stderr):
            break
        if "-b" in what and repository.branch_tip(request.branch) is not None:
            break  # the attempt left its new branch behind, so the next one must attach to it
    return output


def _make_ready(
    repository: Repository,
    request: WorkspaceRequest,
    registered: _Registered,
    pool: Pool | None,
    done: Callable[[], None],
) -> _Ready:
    """Fill a worktree. `done` is called once no file is written any more."""
    index = _fill(repository, request, registered, pool, done)
    done()
    return _Ready(index=index, unsettled=_unsettled(repository, request, registered))


def _fill(
    repository: Repository,
    request: WorkspaceRequest,
    registered: _Registered,
    pool: Pool | None,
    done: Callable[[], None],
) -> tuple[int, ...]:
    """Check out everything that belongs into the tree, and verify it; return the identity of a new index.

    `done` is called in between: the next checkout need not wait for what is not git's.
    """
    spare = registered.spare
    if spare is None or not spare.is_ready_at(registered.tip):
        with repository.visiting(request.path):
            filled = _filled(repository, request, registered)
            done()
            require_complete(
                repository,
                request.path,
                branch=request.branch,
                tip=registered.tip,
                filled=filled,
                fresh=registered.made_tree,
            )
        if filled is not None and (git_dir := admin_dir(repository, request.path)) is not None:
            (git_dir / BEHIND).unlink(missing_ok=True)
        if pool is not None and pool.is_used and registered.made_tree:
            pool.remember(request, registered.tip)  # of a spare that is ready it is known
    known = spare is None or spare.small or spare.early  # a larger one is for git to compare
    return index_identity(request.path) if registered.made_tree and known else ()


def _unsettled(repository: Repository, request: WorkspaceRequest, registered: _Registered) -> Path | None:
    """Return the mark of a tree that need not be on the disk yet; without a mark, wait until it is there.

    A power failure must leave its files whole, or show that they need not be.
    """
    git_dir = admin_dir(repository, request.path)
    mark = git_dir / UNSETTLED if git_dir else None
    is_marked = mark is not None and mark.exists()
    is_new = registered.made_tree and (registered.spare is None or registered.spare.early)
    if mark is not None and is_marked and is_new:
        return mark
    if mark is not None and (is_marked or registered.made_tree):
        settle(request.path, mark)
    return None


def _filled(repository: Repository, request: WorkspaceRequest, registered: _Registered) -> GitOutput | None:
    unfilled = registered.made_tree or is_half_filled(repository, request.path)
    if request.sparse is not None and unfilled:
        make_sparse(repository, request.path, request.sparse, registered.tip)
    if registered.made_tree:
        return populate(repository, request.path, request.branch, registered.workers)
    completed = complete(repository, request.path, request.branch) if registered.half_filled else None
    if registered.behind:
        _catch_up(repository, request, registered.tip)
    return completed


def _catch_up(repository: Repository, request: WorkspaceRequest, tip: str) -> None:
    """Move a worktree and its branch forward; git refuses if that would touch uncommitted work."""
    path = request.path
    if retried(repository, ("reset", "--keep", "--quiet", tip), path).returncode != 0:
        raise WorkspaceError(
            f"{path} has changes in the way of what {request.story_id} depends on: "
            f"{named(read_status(repository, path).dirty)}",
            hint="commit, stash or remove them there, then run again",
        )


def _roll_back(repository: Repository, request: WorkspaceRequest, registered: _Registered) -> None:
    prepared = registered.spare is not None and bool(registered.spare.seal.prepared)
    if not registered.made_tree or not holds_only_checkout(
        repository, request.path, registered.tip, ignored=prepared
    ):
        return
    if discard(repository, request.path) == "" and registered.made_branch:
        delete_branch(repository, request.branch, registered.tip)

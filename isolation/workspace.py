"""`open_workspace()`: the only way to open where a story works: a worktree, or its claim in the shared tree.

The caller says before leaving the block whether the story is finished. Only then may the
worktree be removed, and only if nothing would be lost; after an error or a cancellation it always stays. The
shared tree is the user's and is never removed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from isolation.claims.globs import Claim
from isolation.errors import IsolationError
from isolation.git.checkout import admin_dir
from isolation.git.repository import Repository, offload
from isolation.model import Closing, Workspace, WorkspaceRequest
from isolation.shared_tree.claim_branch import open_claim, record_leftovers
from isolation.worktree.checkout_files import after_checkouts
from isolation.worktree.layers.lifting import make_plain
from isolation.worktree.opening import create_or_attach, create_undoable
from isolation.worktree.pool.bottoms import Bottoms
from isolation.worktree.pool.pool import Pool
from isolation.worktree.power_loss import settle
from isolation.worktree.provision import ProvisionReport, brings_files, provision, relink, require_inside
from isolation.worktree.removal import close

if TYPE_CHECKING:
    import trio

_GRACE = 60.0


@dataclass(slots=True, kw_only=True)
class OpenWorkspace:
    """A story's workspace while it is open; `closing` says afterwards what happened to it.

    Until `begin` it is only prepared: an error or a cancellation before that undoes what was made for it.
    """

    workspace: Workspace
    provision: ProvisionReport = field(default_factory=ProvisionReport)
    finished: bool = False
    begun: bool = field(default=False, init=False)
    closing: Closing | None = field(default=None, init=False)
    provide: Callable[[], Awaitable[tuple[Workspace, ProvisionReport]]] | None = None

    async def settle(self) -> None:
        """Have the files on the disk, if they are those of a new worktree; only then its state counts."""
        mark = self.workspace.unsettled
        if mark is not None:
            await offload(settle, self.workspace.path, mark)
            self.workspace = replace(self.workspace, unsettled=None)

    async def begin(self) -> Workspace:
        """Make the workspace ready for work and return it; from now on it is kept, whatever happens."""
        self.begun = True
        if self.provide is not None:
            self.workspace, self.provision = await self.provide()
        return self.workspace


@asynccontextmanager
async def open_workspace(
    repository: Repository,
    request: WorkspaceRequest,
    *,
    limiter: "trio.CapacityLimiter",
    claim: Claim | None = None,
    resumed: bool = False,
    symlink_directories: Sequence[str] = (),
    mounted: bool = False,
    interrupted: bool = False,
    sweep: bool = True,
    pool: Pool | None = None,
    bottoms: Bottoms | None = None,
) -> AsyncIterator[OpenWorkspace]:
    """Open a story's workspace: with a claim in the tree that all share, else in a worktree of its own.

    `resumed` says that this run, or one that was killed, has opened it in the shared tree before. A worktree
    is made before the block; `begin` makes it again if it vanished since, and brings in the ignored files
    that it needs. Where sessions get the shared directories `mounted`, they are linked only when it is kept.
    At the end it is closed or kept. With a `pool` it comes from there if it can, and goes back there. With
    `bottoms` it is a layer over a checkout; one that is kept becomes a worktree with files of its own.
    """
    if claim is not None:
        async with _open_shared(repository, request, claim, resumed=resumed) as shared:
            yield shared
        return
    # Before anything is created: a bad setting leaves no worktree behind.
    require_inside(symlink_directories)
    with pool.lending() if pool is not None and request.sparse is None else nullcontext():
        async with _open_worktree(
            repository,
            request,
            limiter,
            pool,
            bottoms,
            symlink_directories=symlink_directories,
            mounted=mounted,
            interrupted=interrupted,
            sweep=sweep,
        ) as opened:
            yield opened


@asynccontextmanager
async def _open_worktree(
    repository: Repository,
    request: WorkspaceRequest,
    limiter: "trio.CapacityLimiter",
    pool: Pool | None,
    bottoms: Bottoms | None,
    *,
    symlink_directories: Sequence[str],
    mounted: bool,
    interrupted: bool,
    sweep: bool,
) -> AsyncIterator[OpenWorkspace]:
    import trio

    workspace, undo = await create_undoable(
        repository, request, limiter, interrupted=interrupted, pool=pool, bottoms=bottoms
    )

    async def provide() -> tuple[Workspace, ProvisionReport]:
        # The usual case: a few looks take less than to wait for a thread. Where no session has been, none of
        # them can lead to a disk that hangs.
        nothing = not (workspace.reattached or symlink_directories or brings_files(repository))
        if nothing and admin_dir(repository, request.path) is not None:
            return workspace, ProvisionReport()
        provide = partial(provision, repository, request.path, symlink_directories, mounted=mounted)
        report = await offload(_provide, repository, request.path, provide)
        if report is not None:
            return workspace, report
        again = await create_or_attach(repository, request, limiter, bottoms=bottoms)
        return again, await offload(provide)

    opened = OpenWorkspace(workspace=workspace, provide=provide)
    try:
        yield opened
    except BaseException as error:
        if not opened.begun or isinstance(error, IsolationError):
            # Where nothing has run yet, the worktree holds no work and can be removed again.
            with trio.move_on_after(_GRACE, shield=True):
                await offload(partial(make_plain, repository, request.path) if opened.begun else undo)
        opened.closing = Closing(removed=False, reason="story not finished")
        raise
    else:
        await after_checkouts(limiter)
        opened.closing = await _closed(repository, request, opened, pool, sweep=sweep)
    finally:
        removed = opened.closing is not None and opened.closing.removed
        if opened.begun and not removed:
            with trio.move_on_after(_GRACE, shield=True), suppress(OSError):
                await opened.settle()
        if mounted and symlink_directories and opened.begun and not removed:
            with trio.move_on_after(_GRACE, shield=True), suppress(IsolationError, OSError):
                await offload(relink, repository, request.path, symlink_directories)


async def _closed(
    repository: Repository,
    request: WorkspaceRequest,
    opened: OpenWorkspace,
    pool: Pool | None,
    *,
    sweep: bool,
) -> Closing:
    """Close the worktree of a story that is finished, or keep it."""
    closing = Closing(removed=False, reason="story not finished")
    if opened.finished:
        reuse = pool.accept if pool is not None and pool.is_used and request.sparse is None else None
        closing = await close(repository, opened.workspace, sweep=sweep, reuse=reuse)
    return closing if closing.removed else await offload(_kept, repository, request.path, closing)


def _kept(repository: Repository, path: Path, closing: Closing) -> Closing:
    """Make what is kept visible to everybody, if it is a layer; say so if that fails."""
    why = make_plain(repository, path)
    if not why:
        return closing
    return Closing(removed=False, reason=f"{closing.reason}; it is still a layer ({why})")


def _provide(
    repository: Repository, path: Path, provide: Callable[[], ProvisionReport]
) -> ProvisionReport | None:
    """Provide what a worktree lacks; None if it was removed."""
    return None if admin_dir(repository, path) is None else provide()


@asynccontextmanager
async def _open_shared(
    repository: Repository, request: WorkspaceRequest, claim: Claim, *, resumed: bool
) -> AsyncIterator[OpenWorkspace]:
    import trio

    workspace = await offload(partial(open_claim, repository, request, claim, resumed=resumed))
    opened = OpenWorkspace(workspace=workspace)
    try:
        yield opened
    finally:
        if not opened.finished:
            # Best effort: without this record the next run refuses to begin over what is left.
            with trio.move_on_after(_GRACE, shield=True), suppress(IsolationError):
                await offload(record_leftovers, repository, request, claim)

"""`open_workspace()`: the one entrance to where a story works: a worktree, or its claim in the shared tree.

Whoever opens a workspace says before leaving whether the story is finished. Only then may the
worktree go, and only if nothing would be lost; after an error or a cancellation it always stays. The
shared tree is the user's and never goes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from isolation.claims.globs import Claim
from isolation.errors import IsolationError
from isolation.git.checkout import admin_dir
from isolation.git.repository import Repository, offload
from isolation.model import Closing, Workspace, WorkspaceRequest
from isolation.shared_tree.claim_branch import enter, keep_left
from isolation.worktree.opening import create_or_attach
from isolation.worktree.provision import ProvisionReport, provision, require_inside
from isolation.worktree.removal import close

if TYPE_CHECKING:
    import trio

_GRACE = 60.0


@dataclass(slots=True, kw_only=True)
class OpenWorkspace:
    """A story's workspace while it is open; `closing` tells afterwards what became of it."""

    workspace: Workspace
    provision: ProvisionReport
    finished: bool = False
    closing: Closing | None = field(default=None, init=False)


@asynccontextmanager
async def open_workspace(
    repository: Repository,
    request: WorkspaceRequest,
    *,
    limiter: "trio.CapacityLimiter",
    claim: Claim | None = None,
    resumed: bool = False,
    symlink_directories: Sequence[str] = (),
    torn: bool = False,
    sweep: bool = True,
    turn: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[OpenWorkspace]:
    """Open a story's place: with a claim in the tree that all share, else in a worktree of its own.

    `resumed` tells that it has worked in the shared tree before in this run. A worktree waits for the
    story's `turn`, is made again if it vanished meanwhile, gets the ignored files that it needs, and is
    closed or kept at the end.
    """
    if claim is not None:
        async with _open_shared(repository, request, claim, resumed=resumed) as shared:
            yield shared
        return
    require_inside(symlink_directories)
    workspace = await create_or_attach(repository, request, limiter, torn=torn, turn=turn)
    report = await offload(_provide, repository, request.path, symlink_directories)
    if report is None:
        workspace = await create_or_attach(repository, request, limiter)
        report = await offload(provision, repository, request.path, symlink_directories)
    opened = OpenWorkspace(workspace=workspace, provision=report)
    try:
        yield opened
    except BaseException:
        opened.closing = Closing(removed=False, reason="story not finished")
        raise
    if opened.finished:
        opened.closing = await close(repository, workspace, sweep=sweep)
    else:
        opened.closing = Closing(removed=False, reason="story not finished")


def _provide(
    repository: Repository, path: Path, symlink_directories: Sequence[str]
) -> ProvisionReport | None:
    """Bring in what a worktree lacks; None when somebody took it away."""
    if admin_dir(repository, path) is None:
        return None
    return provision(repository, path, symlink_directories)


@asynccontextmanager
async def _open_shared(
    repository: Repository, request: WorkspaceRequest, claim: Claim, *, resumed: bool
) -> AsyncIterator[OpenWorkspace]:
    import trio

    workspace = await offload(partial(enter, repository, request, claim, resumed=resumed))
    opened = OpenWorkspace(workspace=workspace, provision=ProvisionReport())
    try:
        yield opened
    finally:
        if not opened.finished:
            with trio.move_on_after(_GRACE, shield=True), suppress(IsolationError):
                await offload(keep_left, repository, request, claim)

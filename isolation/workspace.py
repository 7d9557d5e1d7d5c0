"""`open_workspace()`: the one entrance to where a story works.

Whoever opens a workspace says before leaving whether the story is finished. Only then may the
worktree go, and only if nothing would be lost; after an error or a cancellation it always stays.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isolation.closing import close
from isolation.model import Closing, Workspace, WorkspaceRequest
from isolation.provision import ProvisionReport, provision, require_inside
from isolation.repository import Repository, offload
from isolation.worktree import create_or_attach

if TYPE_CHECKING:
    import trio


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
    symlink_directories: Sequence[str] = (),
    torn: bool = False,
    sweep: bool = True,
) -> AsyncIterator[OpenWorkspace]:
    """Open a story's worktree, with the ignored files it needs, and close or keep it at the end."""
    require_inside(symlink_directories)
    workspace = await create_or_attach(repository, request, limiter, torn=torn)
    report = await offload(provision, repository, workspace.path, symlink_directories)
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

"""What the events of a workspace make of a story."""

from msgspec.structs import replace

from runner.core.events import events as ev
from runner.core.model import StorySnapshot
from runner.core.progress.workspace import WorkspaceInfo


def workspace_opened(story: StorySnapshot, body: ev.WorkspaceOpened) -> StorySnapshot:
    """Return a story whose workspace is open."""
    before = story.workspace
    opened = replace(
        before,
        branch=body.branch,
        path=body.path,
        base=before.base or body.base,
        head=before.head or body.head,
        opening=False,
        refused=False,
        ports=tuple(body.ports),
        database=body.database,
    )
    return replace(story, workspace=opened)


def without_path(story: StorySnapshot) -> StorySnapshot:
    """Return a story whose worktree is gone."""
    return replace(story, workspace=replace(story.workspace, path=None, refused=False))


def workspace_at_the_end(workspace: WorkspaceInfo, body: ev.StoryFinished) -> WorkspaceInfo:
    """Return what is left of a workspace; one that was never opened has no path."""
    return replace(
        workspace,
        path=None if workspace.opening else workspace.path,
        branch=workspace.branch or body.branch,
        commit=body.commit or workspace.commit,
        commits=body.commits or workspace.commits,
        opening=False,
        refused=workspace.opening,
        ports=(),
        database="",
    )

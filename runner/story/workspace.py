"""Where a story works, and what it commits there: all of its worktree, or what it owns of the shared tree."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from isolation.claims.globs import Claim
from isolation.git.commits import Checkpoint, checkpoint
from isolation.git.repository import offload
from isolation.model import Workspace, WorkspaceRequest
from isolation.shared_tree.claim_branch import commit_claim
from isolation.workspace import OpenWorkspace, open_workspace
from isolation.worktree.opening import require_there
from runner.core.events import events as ev
from runner.core.model import Story, StorySnapshot
from runner.core.text.names import branch_of
from runner.story.context.context import RunContext

A_MOMENT = 0.05


def intent(story: Story, tools: RunContext) -> ev.WorkspacePlanned:
    """Say which workspace is about to be made, before it is."""
    return ev.WorkspacePlanned(
        story_id=story.id,
        branch=branch_of(story.id),
        path=str(tools.place_of(story.id)),
    )


class StoryPlace:
    """The place of one story whose `intent` is recorded; `torn` tells that an earlier one came to nothing."""

    def __init__(self, *, story: Story, tools: RunContext, torn: bool, slot: trio.Event) -> None:
        self._story = story
        self._tools = tools
        self._torn = torn
        self._slot = slot
        self._repository = tools.repository
        self._opened_at = -math.inf
        self.name = ""
        """What git takes for the story's branch; known with its first commit here."""

    @property
    def _now(self) -> StorySnapshot:
        return self._tools.recorder.snapshot.stories[self._story.id]

    @property
    def _claim(self) -> Claim | None:
        sharing = self._tools.sharing
        return sharing.claims[self._story.id] if sharing else None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OpenWorkspace]:
        """Make the story's workspace, wait for its slot, and record that it is open."""
        story, tools = self._story, self._tools
        snapshot = tools.recorder.snapshot
        needed = await offload(self._dependencies) if story.depends_on else ()
        request = WorkspaceRequest(
            run_id=snapshot.run_id,
            story_id=story.id,
            branch=branch_of(story.id),
            path=tools.place_of(story.id),
            parents=needed or (snapshot.base,),
            needs_parents=bool(needed),
        )
        async with open_workspace(
            self._repository,
            request,
            claim=self._claim,
            resumed=bool(self._now.sessions),
            symlink_directories=tools.settings.symlink_directories,
            torn=self._torn,
            sweep=False,  # the trash is emptied when nobody waits for the disk
            limiter=tools.populate,
        ) as opened:
            await self._slot.wait()
            workspace = await opened.begin()
            tools.recorder.defer(
                ev.WorkspaceOpened(
                    story_id=story.id,
                    branch=workspace.branch,
                    path=str(workspace.path),
                    base=workspace.base,
                    head=workspace.head,
                ),
                *(
                    ev.Noted(story_id=story.id, message=f"{skipped.path}: {skipped.reason}")
                    for skipped in opened.provision.skipped
                ),
            )
            self._opened_at = trio.current_time()
            yield opened

    async def require_there(self, workspace: Workspace) -> None:
        """Raise when the story's worktree was taken away while it worked; the shared tree is the user's."""
        opened_at, self._opened_at = self._opened_at, -math.inf
        if self._claim is not None or trio.current_time() < opened_at + A_MOMENT:
            return  # it was looked at just now, and nothing has run in it yet
        await offload(require_there, self._repository, workspace.path)

    def commit(self, workspace: Workspace, since: str, at: float) -> Checkpoint:
        """Commit everything in a worktree; in the shared tree, what the story owns. Blocking."""
        repository, message = self._repository, self._message()
        self.name = repository.name_of_branch(workspace.branch)
        if self._claim is not None:
            return commit_claim(repository, workspace, self._claim, message, at, since=since)
        require_there(repository, workspace.path)
        path, branch, base = workspace.path, workspace.branch, workspace.base
        return checkpoint(repository, path, branch, message, at, base=base, since=since)

    def _dependencies(self) -> tuple[str, ...]:
        """Give the tips of what the story depends on."""
        snapshot = self._tools.recorder.snapshot
        tips = []
        for dependency in self._story.depends_on:
            tip = self._repository.branch_tip(branch_of(dependency))
            tip = tip or snapshot.stories[dependency].commit
            if tip is not None and tip not in tips:
                tips.append(tip)
        return tuple(tips)

    def _message(self) -> str:
        now = self._now
        subject = self._story.title if now.flow == "quick" else f"{self._story.title}: {now.step.name}"
        return (
            f"{subject}\n\n"
            f"Autopilot-Run: {self._tools.recorder.snapshot.run_id}\n"
            f"Autopilot-Story: {self._story.id}\n"
            f"Autopilot-Step: {now.step.number} {now.step.name}\n"
            f"Autopilot-Attempt: {now.attempt}\n"
        )

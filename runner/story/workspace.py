"""Where a story works, and what it commits there: all of its worktree, or what it owns of the shared tree."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from pathlib import Path

import trio
from msgspec.structs import replace

from isolation.claims import globs as claims
from isolation.files import threads
from isolation.files.disk import sync_disk
from isolation.git.clones.uncommitted import put_back
from isolation.git.commits import Checkpoint, checkpoint, commit_paths
from isolation.git.landing.restart import as_one_merge, move_to
from isolation.git.squash import messages, squash
from isolation.model import Workspace, WorkspaceRequest
from isolation.paths import folds_case
from isolation.shared_tree.changes import changed_between
from isolation.shared_tree.claim_branch import commit_claim
from isolation.workspace import OpenWorkspace, open_workspace
from isolation.worktree.aside import remember_brought
from isolation.worktree.checkout_files import after_checkouts
from isolation.worktree.opening import require_there
from isolation.worktree.stale_locks import may_have_locks, remove_stale_locks
from runner.core.events import events as ev
from runner.core.left_out.evidence import Retry
from runner.core.model import RunId, Status, Story, StoryId
from runner.core.text.names import branch_of
from runner.machine.ports import Lease
from runner.plan.stories.sparse import sparse_folders
from runner.story.context.context import RunContext, StoryContext
from runner.story.session.verify_place import bring_back

JUST_OPENED = 0.05
"""For how many seconds a workspace that was just opened need not be checked again."""

SETTLE_AFTER = 0.5
"""How many seconds a session works before the files of its new worktree are waited for."""


def intent(story: Story, run: RunContext) -> ev.WorkspacePlanned:
    """Return the event that says which workspace is about to be made."""
    return ev.WorkspacePlanned(
        story_id=story.id,
        branch=branch_of(story.id),
        path=str(run.workspace_path(story.id)),
    )


class StoryWorkspace:
    """The workspace of one story whose `intent` is recorded.

    `interrupted` says that an earlier intent was never followed by a workspace that was recorded as open.
    """

    def __init__(self, context: StoryContext, *, interrupted: bool) -> None:
        self._context = context
        self._interrupted = interrupted
        self._repository = context.repository
        shared_tree = context.run.shared_tree
        self._claim = shared_tree.claims[context.story.id] if shared_tree else None
        self._leases = ExitStack()
        self._opened_at = -math.inf
        self._opened: OpenWorkspace | None = None
        self._last: Checkpoint | None = None
        """The last checkpoint that was made here."""

    async def open(self) -> AbstractAsyncContextManager[OpenWorkspace]:
        """Return the block in which the story's workspace is open; `begin` makes it ready for work."""
        context, story = self._context, self._context.story
        run = context.log.snapshot
        await self.release_locks()
        builds_on_others = self._parents or self._follows
        needed = await threads.run(self._dependencies) if builds_on_others else ()
        request = WorkspaceRequest(
            run_id=run.run_id,
            story_id=story.id,
            branch=branch_of(story.id),
            path=context.run.workspace_path(story.id),
            parents=needed or (self._base,),
            needs_parents=bool(needed),
            sparse=sparse_folders(story, context.settings),
        )
        return self._with_leases(
            open_workspace(
                self._repository,
                request,
                claim=self._claim,
                resumed=context.now.workspace.head is not None or story.id in context.run.left_open,
                symlink_directories=context.settings.symlink_directories,
                mounted=context.run.write_guard.own_path,
                # A worktree in which a session worked was complete; what is staged there is its own.
                interrupted=self._interrupted and not context.now.sessions,
                sweep=False,  # the trash is emptied when no story waits for the disk
                limiter=context.run.populate,
                pool=context.run.pool,
                bottoms=context.run.bottoms,
            )
        )

    @asynccontextmanager
    async def _with_leases(
        self, opening: AbstractAsyncContextManager[OpenWorkspace]
    ) -> AsyncIterator[OpenWorkspace]:
        """Have what was leased for the workspace given back when it is closed."""
        with self._leases:
            async with opening as opened:
                yield opened

    async def release_locks(self) -> None:
        """Remove the git locks that a killed command left, and say so; no session of the story is alive."""
        run, story_id = self._context.run, self._context.story.id
        # In the shared tree the git directory is the user's, and only the branch is the story's own.
        path = run.workspace_path(story_id) if self._claim is None else None
        if not may_have_locks(self._repository, path, branch_of(story_id)):
            return
        gone = await threads.run(remove_stale_locks, self._repository, path, branch_of(story_id))
        for lock in gone:
            words = f"removed {lock}, which a killed git command left and no process holds"
            self._context.log.defer(ev.Noted(story_id=story_id, message=words))

    async def begin(self, opened: OpenWorkspace) -> Workspace:
        """Make the workspace ready for work, and record that it is open."""
        self._opened = opened
        workspace, story_id = await opened.begin(), self._context.story.id
        left = self._context.now.workspace.left_out
        if left is not None and left.retry is not None:
            workspace = await threads.run(self._started_again, workspace, left.retry)
        if self._claim is None:
            await self._settle(workspace, opened.provision.copied)
            back = await threads.run(put_back, self._repository, workspace.path, story_id)
            if back:
                self._context.log.defer(ev.Noted(story_id=story_id, message=back))
        leased = await threads.run(self._lease, workspace) if self._context.ports else None
        self._context.log.defer(
            ev.WorkspaceOpened(
                story_id=story_id,
                branch=workspace.branch,
                path=str(workspace.path),
                base=workspace.base,
                head=workspace.head,
                ports=leased.ports if leased else (),
                database=leased.database if leased else "",
            ),
            *(
                ev.Noted(story_id=story_id, message=f"{skipped.path}: {skipped.reason}")
                for skipped in opened.provision.skipped
            ),
        )
        if self._claim is not None:
            # From here on hooks and the runner itself write into the claim. After a kill, only this record
            # distinguishes that from what the user left there.
            await self._context.log.record()
        self._opened_at = trio.current_time()
        return workspace

    def _lease(self, workspace: Workspace) -> Lease | None:
        """Lease the story's ports until its workspace is closed, if possible those it had before. Blocks."""
        context = self._context
        owner = context.story.id if self._claim is not None else ""
        before = context.now.workspace.ports
        lent = context.run.ports.lent(workspace.path, context.ports, owner=owner, before=before)
        return self._leases.enter_context(lent)

    def _started_again(self, workspace: Workspace, retry: Retry) -> Workspace:
        """Bring the branch onto the tip on which the story is tried again. Blocking."""
        move_to(
            self._repository,
            workspace.path,
            workspace.branch,
            old=retry.old,
            commit=retry.commit,
            name=f"{self._context.story.id}/{retry.old[:12]}",
        )
        head = self._repository.branch_tip(workspace.branch) or retry.commit
        return replace(workspace, base=retry.base, head=head)

    async def _settle(self, workspace: Workspace, copied: tuple[str, ...]) -> None:
        """Remember what was copied into the worktree, and undo what a killed run did for its verify commands.

        If these come next again, they find the worktree as they left it.
        """
        if copied:
            await threads.run(remember_brought, workspace.path, copied)
        if workspace.reattached and not self._context.now.progress.implemented:
            await bring_back(self._context, workspace)

    async def require_there(self, workspace: Workspace) -> None:
        """Raise when the story's worktree was removed while it worked; the shared tree is the user's."""
        opened_at, self._opened_at = self._opened_at, -math.inf
        if self._claim is not None or trio.current_time() < opened_at + JUST_OPENED:
            return  # it was just checked, and nothing has run in it yet
        await threads.run(require_there, self._repository, workspace.path)

    async def after_checkouts(self) -> None:
        """Let stories that wait for the files of their worktree start first."""
        if self._claim is None:
            await after_checkouts(self._context.run.populate)

    @property
    def beside(self) -> Callable[[], Awaitable[None]] | None:
        """What runs beside the next session; None if nothing has to."""
        return self._settle_soon if self._is_unsettled else None

    async def _settle_soon(self) -> None:
        """Have the files of a new worktree on the disk while its first session works.

        A session that is shorter than that leaves it to `survive`, which waits for the disk anyway.
        """
        await trio.sleep(SETTLE_AFTER)
        await self.after_checkouts()  # what they write would have to be waited for, too
        with suppress(OSError):  # as `survive` will say
            await self._settle_files()

    async def survive(self, folder: Path, *, worked: bool) -> None:
        """Have on the disk what a session has left: what is acknowledged is never repeated.

        What a short one leaves waits for the first files of other stories: to write both takes twice as long.
        """
        if worked:
            await self.after_checkouts()
        if not await self._settle_files() and worked:
            await threads.run(sync_disk, folder)

    async def _settle_files(self) -> bool:
        """Whether that has made anything certain."""
        if self._opened is None or not self._is_unsettled:
            return False
        await self._opened.settle()
        return True

    @property
    def _is_unsettled(self) -> bool:
        return self._opened is not None and self._opened.workspace.unsettled is not None

    def commit(self, workspace: Workspace, since: str, at: float) -> Checkpoint:
        """Commit everything in a worktree; in the shared tree, what the story owns. Blocking."""
        repository, message = self._repository, self._message()
        if self._claim is not None:
            made = commit_claim(repository, workspace, self._claim, message, at, since=since)
        else:
            require_there(repository, workspace.path)
            path, branch, base = workspace.path, workspace.branch, workspace.base
            index = workspace.index if since == workspace.head else ()
            made = checkpoint(repository, path, branch, message, at, base=base, since=since, index=index)
            if self._opened is not None:  # what is known of it need not be asked when it is closed
                known = replace(self._opened.workspace, head=made.tip, index=made.index)
                self._opened.workspace = known
            made = self._one_merge(workspace, made, since, message)
        self._last = made
        return made

    def foreign(self, workspace: Workspace, head: str, owned: Callable[[str], bool]) -> tuple[str, ...]:
        """Return what the story has changed and does not own. Blocking."""
        last = self._last
        if last is not None and last.tip == head and last.among is not None and all(map(owned, last.among)):
            return ()  # the usual case, without a git process
        changed = self._repository.changed_paths(workspace.base, head, workspace.path)
        return tuple(path for path in changed if not owned(path))

    def commit_own(self, workspace: Workspace, paths: tuple[str, ...], at: float) -> str | None:
        """Commit what the runner wrote, and nothing else; return the new tip, if there is one. Blocking."""
        repository, run_id = self._repository, self._context.log.snapshot.run_id
        # It belongs to no step, so that rolling one back leaves it alone.
        message = own_edit_message(self._context.story, run_id)
        if self._claim is None:
            return commit_paths(repository, workspace.path, workspace.branch, message, at, paths=paths)
        since = repository.branch_tip(workspace.branch)
        own = claims.compile(
            tuple(glob for path in paths for glob in (path, f"{path}/**")), folding=folds_case(workspace.path)
        )
        made = commit_claim(repository, workspace, own, message, at, since=since or workspace.base)
        return made.tip if made.tip != since else None

    def squash(self, workspace: Workspace, tip: str) -> str | None:
        """Make the branch one commit, and return it; None if it must stay as it is. Blocking."""
        repository, run_id = self._repository, self._context.log.snapshot.run_id
        own = f"Autopilot-Story: {self._context.story.id}"
        written = messages(repository, workspace.base, tip)
        return squash(
            repository,
            workspace.branch,
            squashed_message(self._message(), [text for text in written if own not in text], tip),
            base=workspace.base,
            tip=tip,
            keep_as=f"{run_id}/{workspace.branch}",
        )

    def _one_merge(self, workspace: Workspace, made: Checkpoint, since: str, message: str) -> Checkpoint:
        """Make a checkpoint part of the merge with the target that it follows. Blocking."""
        left = self._context.now.workspace.left_out
        if left is None or left.retry is None or made.tip == since:
            return made
        subject, _, trailers = message.partition("\n\n")
        tip = as_one_merge(
            self._repository,
            workspace.branch,
            f"{subject}, on top of {left.onto}\n\n{trailers}",
            parents=(left.retry.base, left.retry.old),
            start=since,
            tip=made.tip,
            keep_as=f"{self._context.story.id}/{made.tip[:12]}",
        )
        if tip is None:
            return made
        commits = self._repository.count_commits(workspace.base, tip)
        return replace(made, tip=tip, commits=commits, among=None)

    @property
    def _base(self) -> str:
        """The commit that the story starts from without dependencies; once it has, that stays."""
        run, settings = self._context.run, self._context.settings
        if not settings.base_follow:
            return run.base
        return self._context.now.workspace.base or run.newest_base

    @property
    def _parents(self) -> tuple[StoryId, ...]:
        """The stories whose commits it builds on: what it depends on, in its own repository."""
        states, story = self._context.log.snapshot.stories, self._context.story
        return tuple(name for name in story.depends_on if states[name].repo == story.repo)

    @property
    def _follows(self) -> bool:
        """Whether the story may find what others of this run have changed in what it owns."""
        return self._claim is not None and self._context.settings.max_stories == 1

    def _before(self) -> tuple[StoryId, ...]:
        """Return the stories that were done in this run and have changed what this one owns."""
        run, repository = self._context.log.snapshot, self._repository
        claim = self._claim if self._follows else None
        if claim is None:
            return ()
        return tuple(
            story.id
            for story in run.stories.values()
            if story.status is Status.DONE
            and story.repo == self._context.story.repo
            and story.sessions
            and (tip := story.workspace.commit) is not None
            and any(map(claim.owns, changed_between(repository, story.workspace.base or self._base, tip)))
        )

    def _dependencies(self) -> tuple[str, ...]:
        """Return the tips of the branches that the story starts from."""
        snapshot = self._context.log.snapshot
        base = self._base
        tips: list[str] = []
        inherited: list[StoryId] = []
        for dependency in dict.fromkeys((*self._parents, *self._before())):
            tip = self._repository.branch_tip(branch_of(dependency))
            recorded = snapshot.stories[dependency].workspace.commit
            if recorded is not None and self._is_landed(recorded, tip, base):
                inherited.append(dependency)
            elif (found := tip or recorded) is not None and found not in tips:
                tips.append(found)
        return (base, *tips) if inherited and tips else tuple(tips)

    def _is_landed(self, recorded: str, tip: str | None, base: str) -> bool:
        """Whether the base has a dependency that was done before, as other commits than its branch.

        Merging that branch in would bring back what was changed or deleted since.
        """
        repository = self._repository
        if tip is not None and repository.is_ancestor(recorded, tip):
            return False
        return repository.is_ancestor(recorded, base)

    def _message(self) -> str:
        story, now = self._context.story, self._context.now
        subject = story.title if now.flow == "quick" else f"{story.title}: {now.step.name}"
        return (
            f"{subject}\n\n"
            f"Autopilot-Run: {self._context.log.snapshot.run_id}\n"
            f"Autopilot-Story: {story.id}\n"
            f"Autopilot-Step: {now.step.number} {now.step.name}\n"
            f"Autopilot-Attempt: {now.progress.attempt}\n"
        )


def own_edit_message(story: Story, run_id: RunId) -> str:
    """Return the message of a commit that holds what the runner wrote into the documents of a story."""
    return f"{story.title}: state file\n\nAutopilot-Run: {run_id}\nAutopilot-Story: {story.id}\n"


def squashed_message(message: str, of_agent: Sequence[str], tip: str) -> str:
    """Return the message of a squashed branch: the story's own, with what its agent wrote in between.

    The message of a single commit is kept whole, of several only their subjects. Co-authors are kept.
    """
    subject, _, trailers = message.partition("\n\n")
    authors = dict.fromkeys(
        line.strip()
        for text in of_agent
        for line in text.splitlines()
        if line.lower().startswith("co-authored-by:")
    )
    texts = [_without(text, authors) for text in of_agent]
    body = texts[0] if len(texts) == 1 else "\n".join(f"- {text.partition(chr(10))[0]}" for text in texts)
    credits_ = "".join(f"{line}\n" for line in authors)
    parts = (subject, body, f"{trailers}Autopilot-Squashed: {tip}\n{credits_}")
    return "\n\n".join(part for part in parts if part)


def _without(text: str, lines: Mapping[str, None]) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip() not in lines).strip()

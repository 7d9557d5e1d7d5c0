"""Drafts beside a run: opened and updated as its stories get along, so that no story ever waits for a forge.

A forge that does not answer costs the run nothing but a note: the intent is in the journal, and `pr` or
`resume` completes it.
"""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import trio
from trio import from_thread, to_thread

from isolation.errors import IsolationError
from isolation.git.remotes import described
from isolation.git.repository import Repository
from runner.core.drafts.stack import in_order
from runner.core.errors import RunnerError
from runner.core.events import drafts as df
from runner.core.events import events as ev
from runner.core.events.steering import StoriesAdded
from runner.core.events.story_json import from_json
from runner.core.model import RunSnapshot, Status, Story, StoryId, StorySnapshot
from runner.core.setting_groups.draft_settings import ON_LOOP_START
from runner.core.settings import Settings
from runner.forge.errors import OutageError
from runner.run.drafts.body import load_template
from runner.run.drafts.places import forge_of, report_of, target_of
from runner.run.drafts.publisher import Desk, How, Publisher, require_writable
from runner.story.context.context import RunContext

END_SECONDS = 180.0
"""How long the end of a run may wait for the drafts that are left."""
STOPPED_SECONDS = 15.0
"""The same, if the user has stopped the run."""
_KINDS = (ev.Checkpointed, ev.StoryFinished, StoriesAdded)


@asynccontextmanager
async def publishing(context: RunContext, stories: Iterable[Story]) -> AsyncIterator[None]:
    """Publish the drafts of stories during the block; when it is left, those that are still to do."""
    side = _Side(context, stories)
    context.log.subscribe(side.notice, *_KINDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(side.serve)
        yield
        side.ending = True
        side.happened.set()
        patience = STOPPED_SECONDS if context.control.asked else END_SECONDS
        nursery.cancel_scope.deadline = trio.current_time() + patience
    if side.wanted:
        left = ", ".join(side.wanted)
        await context.log.record(
            ev.Noted(message=f"drafts not published yet: {left}; `autopilot-multi pr` does")
        )


def require_drafts(repository: Repository, settings: Settings) -> str:
    """Raise before anything is spent if drafts cannot be opened; else return where they would go. Blocking.

    A forge that does not answer now may answer when the first story is done.
    """
    forge = forge_of(repository, settings)
    load_template(repository.top, settings.draft_template)
    with suppress(OutageError):
        require_writable(forge.hosted(), settings.draft_remote)
    return draft_note(repository, settings)


def draft_note(repository: Repository, settings: Settings) -> str:
    """Return what a run sends for each story."""
    when = "its first commit is there" if settings.draft_mr == ON_LOOP_START else "it is done"
    onto, to = target_of(repository, settings), described(repository, settings.draft_remote)
    return f"drafts: when {when}, the branch of each story is pushed to {to}, and a draft opened for {onto}"


class _Side:
    """The task that publishes, and what it still has to do."""

    def __init__(self, context: RunContext, stories: Iterable[Story]) -> None:
        self._context = context
        self._written = {story.id: story for story in stories}
        self._early = context.settings.draft_mr == ON_LOOP_START
        self.happened = trio.Event()
        self.ending = False
        snapshot = context.log.snapshot
        # What a killed run has left to do.
        self.wanted = dict.fromkeys(story.id for story in snapshot.stories.values() if self._is_due(story))
        self._publisher: Publisher | None = None

    def notice(self, event: ev.Event, run: RunSnapshot) -> None:
        """Take note of a story whose draft should show more than it does."""
        body = event.body
        if isinstance(body, StoriesAdded):
            added = map(from_json, body.stories)
            self._written |= {story.id: story for story in added}
            return
        story = run.stories.get(ev.story_of(body) or StoryId(""))
        if story is not None and self._is_due(story):
            self.wanted[story.id] = None
            self.happened.set()

    def _is_due(self, story: StorySnapshot) -> bool:
        workspace = story.workspace
        if not workspace.commits or workspace.landed or not story.sessions:
            return False
        known = workspace.draft is not None and bool(workspace.draft.number or workspace.draft.planned)
        return self._early or known or story.status is Status.DONE

    async def serve(self) -> None:
        """Publish what is wanted until the run has ended and nothing is left."""
        while True:
            while self.wanted:
                run = self._context.log.snapshot
                needs = {name: one.depends_on for name, one in run.stories.items()}
                first = in_order(list(self.wanted), needs)[0]
                del self.wanted[first]  # first: it may be wanted again in the meantime
                try:
                    await self._publish(first)
                except trio.Cancelled:
                    self.wanted[first] = None
                    raise
            if self.ending:
                return
            self.happened = trio.Event()
            await self.happened.wait()

    async def _publish(self, story_id: StoryId) -> None:
        log = self._context.log
        try:
            outcome = await to_thread.run_sync(self._published, story_id)
        except (RunnerError, IsolationError) as error:
            hint = f" ({error.hint})" if error.hint else ""
            message = f"no draft was published: {error.message}{hint}"
            await log.record(ev.Noted(story_id=story_id, message=message))
            return
        for note in outcome[1]:
            await log.record(ev.Noted(story_id=story_id, message=note))

    def _published(self, story_id: StoryId) -> tuple[How, tuple[str, ...]]:
        if self._publisher is None:
            self._publisher = self._opened()
        outcome = self._publisher.publish(story_id)
        return outcome.how, outcome.notes

    def _opened(self) -> Publisher:
        context = self._context
        repository, settings, log = context.repository, context.settings, context.log
        desk = Desk(
            repository=repository,
            settings=settings,
            forge=forge_of(repository, settings, pause=_pause),
            onto=target_of(repository, settings),
            redactor=log.redactor,
            report=report_of(settings, log.snapshot.run_id, os.environ),
        )
        return Publisher(desk, snapshot=lambda: log.snapshot, written=self._written.get, record=self._record)

    def _record(self, body: df.DraftBody) -> None:
        from_thread.run(self._context.log.record, body)


def _pause(seconds: float) -> None:
    """Wait in a thread of the run; the end of the run ends the wait."""
    from_thread.run(trio.sleep, seconds)

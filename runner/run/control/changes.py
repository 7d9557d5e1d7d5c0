"""What changes the backlog of an active run, on the coordinator's side: stories added, retried, taken over.

Each method returns why it did not act, empty if it did. A change is durable before the orchestrator sees it,
and while one is under way (`busy`) the run does not end: what was asked just before the end is done or
refused, never lost.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from trio import to_thread

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from isolation.model import IsolationMode
from isolation.paths import folds_case, worktree_path
from isolation.worktree.fresh import start_over
from runner.agents.catalog import require_clear_models, workers_of
from runner.agents.workers import Workers
from runner.core.errors import NotFoundError, RunnerError, UsageError
from runner.core.events.drafts import ReviewTaken
from runner.core.events.events import Noted
from runner.core.events.steering import StoriesAdded, StoryEdited, StoryRetried
from runner.core.events.story_json import digest, from_json, to_json
from runner.core.limits.kill_switches import TAKEN_OVER
from runner.core.model import RunSnapshot, Status, Story, StoryId, StorySnapshot
from runner.core.schedule.graph import ordered
from runner.core.text.names import branch_of, id_problem
from runner.plan.claims import require_disjoint_stories
from runner.plan.stories.edited import edited_story, may_be_edited
from runner.run.control import requests as rq
from runner.run.control.backlog import RunningBacklog
from runner.story.context.context import RunContext
from runner.story.context.stop import Level

PERSON = "person"
ENDING = "the run is about to end; continue it with `autopilot-multi resume`"
LEAVING_SECONDS = 10.0
_OPEN = frozenset({Status.WAITING, Status.QUEUED})


class BacklogChanges:
    """Changes one active run.

    `is_held` says whether a story has a pipeline, `admits` whether any story may still start.
    """

    def __init__(
        self,
        context: RunContext,
        backlog: RunningBacklog,
        *,
        is_held: Callable[[StoryId], bool],
        admits: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        self.busy = 0
        self.closed = False
        """Set when the run will start nothing more."""
        self._context = context
        self._backlog = backlog
        self._is_held = is_held
        self._admits = admits
        self._wake = wake
        self._departed = trio.Event()
        # The file of a story that has begun in an earlier process of this run counts as it was then.
        stories = context.log.snapshot.stories.values()
        self._read = {story.id for story in stories if story.sessions}

    async def add(self, request: rq.Add) -> str:
        """Take stories into the run, checked as in a plan; consent was given where they were sent from."""
        try:
            stories = [from_json(entry) for entry in request.stories]
        except (ValueError, TypeError) as error:
            return f"the stories cannot be read: {error}"
        problem = self._ending() or self._not_addable(stories)
        if problem:
            return problem
        with self._changing():
            try:
                ordered([*{**self._backlog.by_id, **{story.id: story for story in stories}}.values()])
                workers = await to_thread.run_sync(partial(self._workers, stories))
                await to_thread.run_sync(partial(self._require_disjoint, stories))
            except (RunnerError, IsolationError) as error:
                return f"{error.message}; {error.hint}" if error.hint else error.message
            # One may have started in the meantime.
            problem = self._not_addable(stories) or self._not_claimable(stories)
            if not problem:
                await self._context.log.record(_added(stories))
                self._backlog.take(stories, workers)
            return problem

    def _require_disjoint(self, stories: Sequence[Story]) -> None:
        """Refuse stories of a shared tree that would own a path which another one owns. Blocking."""
        context = self._context
        if context.shared_tree is None or context.settings.max_stories == 1:
            return
        everybody = {**self._backlog.by_id, **{story.id: story for story in stories}}.values()
        for here in context.everywhere:
            own = [story for story in everybody if story.repo == here.repo]
            require_disjoint_stories(own, folding=folds_case(here.repository.top))

    def _not_claimable(self, stories: Sequence[Story]) -> str:
        """Take the claims of stories for a shared tree; return why its level cannot enclose them."""
        try:
            for story in stories:
                tree = self._context.at(story.repo).shared_tree
                if tree is not None:
                    tree.admit(story)
        except IsolationError as error:
            return f"{error.message}; {error.hint}" if error.hint else error.message
        return ""

    async def retry(self, request: rq.Retry) -> str:
        """Try a story again that has ended."""
        story_id = request.story_id
        with self._changing():
            await self._until_left(story_id)
            problem = self._ending()
            if not problem and self._is_held(story_id):
                problem = f"story {story_id} has not ended yet"
            if problem:
                return problem
            context = self._context
            state = context.log.snapshot.stories.get(story_id)
            here = context.at(state.repo) if state is not None else context
            make = partial(retried, here.repository, context.log.snapshot, request, here.worktree_root)
            try:
                event = await to_thread.run_sync(make)
            except (RunnerError, IsolationError) as error:
                return error.message
            context.control.forget(story_id)
            self._read.discard(story_id)
            await context.log.record(event)
            self._backlog.relevant.start_over()
            return ""

    def take_over(self, request: rq.TakeOver) -> str:
        """End a story after its current session, for the user to continue it."""
        story = self._context.log.snapshot.stories.get(request.story_id)
        if story is None:
            return _unknown(request.story_id)
        if not story.sessions:
            return f"story {story.id} has had no session yet, so there is nothing to take over"
        if story.status is Status.RUNNING:
            self._context.control.raise_story(story.id, Level.FINISH, TAKEN_OVER)
        self._wake()
        return ""

    async def read_again(self, names: Sequence[StoryId]) -> bool:
        """Read the files of stories that are about to start; return whether that took time."""
        new = [name for name in names if name not in self._read]
        self._read.update(new)
        top, since = self._context.repository.top, self._context.log.snapshot.started_at
        look = partial(edited_story, top=top)
        stories = [
            story
            for story in map(self._backlog.by_id.__getitem__, new)
            if may_be_edited(story, top=top, since=since)
        ]
        for story in stories:
            edited = await to_thread.run_sync(look, story)
            if edited is None:
                continue
            if edited.note:
                await self._context.log.record(Noted(story_id=story.id, message=edited.note))
            if edited.story != story:
                entry = to_json(edited.story)
                await self._context.log.record(
                    StoryEdited(story_id=story.id, story=entry, digest=digest(edited.story))
                )
                self._backlog.edit(edited.story)
        return bool(stories)

    def departed(self) -> None:
        """Take note that a pipeline has ended."""
        self._departed.set()
        self._departed = trio.Event()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1
            self._wake()

    def _ending(self) -> str:
        return ENDING if self.closed or not self._admits() else ""

    def _not_addable(self, stories: Sequence[Story]) -> str:
        if not stories:
            return "there are no stories to add"
        states = self._context.log.snapshot.stories
        seen: set[StoryId] = set()
        for story in stories:
            bad = id_problem(story.id)
            if bad or story.id in seen:
                return f"story '{story.id}': {bad or 'it is there twice'}"
            seen.add(story.id)
            if story.repo not in {here.repo for here in self._context.everywhere}:
                return f"story '{story.id}': the run does not work in a repository '{story.repo}'"
            state = states.get(story.id)
            if state is not None and (state.status not in _OPEN or self._is_held(story.id)):
                return f"story {story.id} is already in the run and has started, or is about to"
        return ""

    def _workers(self, stories: Sequence[Story]) -> Mapping[StoryId, Workers]:
        settings = self._context.settings
        workers = {story.id: workers_of(story, settings) for story in stories}
        require_clear_models(workers.values(), settings)
        return workers

    async def _until_left(self, story_id: StoryId) -> None:
        """Wait a while for the pipeline of a story that has its result already."""
        with trio.move_on_after(LEAVING_SECONDS):
            while self._is_held(story_id) and self._context.log.snapshot.stories[story_id].status.final:
                await self._departed.wait()


def retried(repository: Repository, run: RunSnapshot, request: rq.Retry, root: Path) -> StoryRetried:
    """Return the event by which a story is tried again; one that is to start over is freed first. Blocking.

    `root` is the folder of the worktrees. Raises if the story cannot be tried again.
    """
    story = run.stories.get(request.story_id)
    if story is None:
        raise NotFoundError(_unknown(request.story_id), hint="`autopilot-multi status` lists its stories.")
    obstacle = _not_retriable(story)
    if not obstacle and request.fresh and run.isolation == IsolationMode.NONE:
        obstacle = "a story cannot start over in a shared tree, where its work is in the checkout"
    if not obstacle and request.fresh and (story.candidates or story.candidate > 1):
        obstacle = f"story {story.id} has several candidates, so only `run {story.id} --again --fresh` can"
    if obstacle:
        raise UsageError(obstacle, hint=f"`autopilot-multi show {story.id}` shows where it is.")
    place = (branch_of(story.id), worktree_path(root, story.id))
    # Freed before the event: if this process is killed in between, the old tip is kept, and nothing else.
    kept = start_over(repository, {story.id: place}).get(story.id, "") if request.fresh else ""
    return StoryRetried(
        story_id=story.id,
        by=PERSON,
        note=request.note.strip(),
        fresh=request.fresh,
        kept=kept,
        unblocked=tuple(skipped_by(run, story.id)),
    )


def require_reviewable(run: RunSnapshot, review: ReviewTaken) -> ReviewTaken:
    """Return the event by which a story is tried again after a review, or raise if it is not over."""
    story = run.stories.get(review.story_id)
    if story is None:
        raise NotFoundError(_unknown(review.story_id), hint="`autopilot-multi status` lists its stories.")
    if story.status not in {Status.DONE, Status.FAILED, Status.STOPPED, Status.NO_WORK}:
        raise UsageError(
            f"story {story.id} has not ended yet (it is {story.status.value})",
            hint=f"`autopilot-multi show {story.id}` shows where it is.",
        )
    return review


def _not_retriable(story: StorySnapshot) -> str:
    """Return why a story cannot be tried again, and what to do instead; empty if it can."""
    if not story.status.final:
        return f"story {story.id} has not ended yet (it is {story.status.value})"
    if story.status is Status.PARKED:
        return f"story {story.id} waits for a decision: `autopilot-multi decide {story.id}`"
    if story.status is Status.SKIPPED:
        blockers = ", ".join(story.blocked_by) or "another story"
        return f"story {story.id} was skipped because of {blockers}; retry that"
    if story.status is Status.DONE:
        return f"story {story.id} is done; `autopilot-multi run {story.id} --again` runs it again"
    return ""


def skipped_by(run: RunSnapshot, story_id: StoryId) -> list[StoryId]:
    """Return the stories that were skipped because of one, directly or through others."""
    found: list[StoryId] = []
    blockers = {story_id}
    for _ in run.stories:
        new = [
            story.id
            for story in run.stories.values()
            if story.status is Status.SKIPPED
            and story.id not in blockers
            and blockers.intersection((*story.blocked_by, *story.depends_on))
        ]
        if not new:
            break
        found += new
        blockers.update(new)
    return found


def _added(stories: Sequence[Story]) -> StoriesAdded:
    entries: tuple[Mapping[str, Any], ...] = tuple(to_json(story) for story in stories)
    return StoriesAdded(stories=entries, digests={story.id: digest(story) for story in stories}, by=PERSON)


def _unknown(story_id: StoryId) -> str:
    return f"the run has no story '{story_id}'"

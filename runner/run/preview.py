"""The prompt that a story's next session would get, made by the code that a run uses; nothing is written.

The story is taken as far as its next session with a log that keeps nothing and a state file in memory: its
step is found, answers are acted upon, and the step begins. If the newest run can continue the story, it is
continued as `resume` would do it; otherwise it starts as in a new run.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import trio
from msgspec import Struct
from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.keeper.client import Keeper
from isolation.keeper.fork_server import ForkServer
from isolation.model import Workspace
from isolation.paths import journal_path, keepers_lock_path
from runner.agents.catalog import PROGRAMS, workers_of
from runner.core import choose
from runner.core.errors import JournalError, NotFoundError
from runner.core.events import events as ev
from runner.core.events.fold import apply, fold
from runner.core.events.run_stories import entries_of, story_in
from runner.core.flow import QUICK
from runner.core.flow import step as step_of
from runner.core.model import FLOW_DONE, RunId, RunSnapshot, Status, Story, StoryId, Tier
from runner.core.schedule.window import at_start
from runner.core.settings import Settings
from runner.core.text.names import did_you_mean
from runner.machine import probe
from runner.plan.earlier_runs import load_past
from runner.plan.plan import Plan
from runner.plan.repositories.site import worktree_root_of
from runner.plan.settings.json_form import from_json as settings_from_json
from runner.plan.shared_tree import enforcement_of
from runner.plan.standing import flow_of, unsaved_state
from runner.plan.story_tree import story_tree
from runner.records.event_log import EventLog
from runner.records.history import Past, past_of
from runner.records.journal import Journal
from runner.run.first_events import as_recorded, beginning, planned_retries
from runner.run.setup import Assignment, make_context
from runner.run.several.places import repository_of
from runner.story.context.context import StoryContext, story_context
from runner.story.context.stop import StopControl
from runner.story.flow.steps import FlowSteps
from runner.story.flow.tracker_gate import TrackerGate
from runner.story.sessions import prompt_facts, prompt_text

_NEW = RunId("preview")
_RESUMABLE = frozenset({Status.WAITING, Status.QUEUED, Status.RUNNING, Status.STOPPED, Status.PARKED})


class Preview(Struct, frozen=True, kw_only=True):
    """A prompt, and what the user should know about it: what comes before the session."""

    prompt: str
    notes: tuple[str, ...] = ()


class _Story(Struct, frozen=True, kw_only=True):
    """One story of a run that would start or continue."""

    story: Story
    settings: Settings
    snapshot: RunSnapshot
    past: Past


class _Nowhere:
    """A store that keeps nothing."""

    def append(self, events: Sequence[ev.Event]) -> None:
        """Forget them."""


def preview(plan: Plan, story_id: StoryId, *, new_run: bool = False) -> Preview:
    """Return the prompt that the next session of a story would get now; with `new_run`, not by a resume."""
    story = next((each for each in plan.stories if each.id == story_id), None)
    if story is None:
        known = [each.id for each in plan.stories]
        raise NotFoundError(
            f"there is no story {story_id}",
            hint=did_you_mean(story_id, known) or f"there are: {', '.join(known)}.",
        )
    continued = None if new_run else _continued(plan.repository, story.id)
    return trio.run(_preview, plan, continued or _started(plan, story))


def _continued(repository: Repository, story_id: StoryId) -> _Story | None:
    """Return the story as the newest run would continue it; None if that cannot be."""
    try:
        with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
            return _resumable(journal, repository, story_id)
    except (JournalError, NotFoundError):  # no run yet
        return None


def _started(plan: Plan, story: Story) -> _Story:
    """Return the story as a new run would start it."""
    past = load_past(plan.repository, [story]).get(story.id, Past())
    snapshot = fold(_NEW, [_event(body) for body in beginning(plan, Tier.UNKNOWN, "")])
    return _Story(story=story, settings=plan.sites[story.repo].settings, snapshot=snapshot, past=past)


def _resumable(journal: Journal, repository: Repository, story_id: StoryId) -> _Story | None:
    run_id = journal.newest_run()
    events = journal.events(run_id)
    snapshot = fold(run_id, events)
    story = snapshot.stories.get(story_id)
    entry = entries_of(events).get(story_id)
    if story is None or entry is None:
        return None
    recorded = story_in(entry)
    here = {story.repo: repository_of(repository, snapshot, story_id)}
    for retry in planned_retries(here, snapshot, (recorded,)):
        snapshot = apply(snapshot, _event(retry))
        (recorded,) = as_recorded((recorded,), snapshot)
    if snapshot.stories[story_id] is story and story.status not in _RESUMABLE:
        return None
    info = snapshot.repos.get(recorded.repo) if recorded.repo else None
    settings = settings_from_json(info.settings if info else snapshot.options, top=repository.top)
    resumed = apply(snapshot, _event(ev.RunResumed(requeued=(story_id,))))
    past = past_of(journal, [recorded], before=run_id).get(story_id, Past())
    return _Story(story=recorded, settings=settings, snapshot=resumed, past=past)


def _event(body: ev.Body) -> ev.Event:
    return ev.Event(run_id=_NEW, at=time.time(), body=body)


async def _preview(plan: Plan, of: _Story) -> Preview:
    story, settings = of.story, of.settings
    repository = repository_of(plan.repository, of.snapshot, story.id)
    root = worktree_root_of(repository, settings)
    started = apply(of.snapshot, _event(ev.StoryStarted(story_id=story.id)))
    log = EventLog(store=_Nowhere(), snapshot=started)
    load = at_start(probe.sample(root, PROGRAMS), settings)
    log.show(ev.WindowChanged(window=load.stories, tier=load.tier, reason=load.reason))
    assignment = Assignment(
        repository=repository,
        settings=settings,
        worktree_root=root,
        stories=(story,),
        workers={story.id: workers_of(story, settings)},
        enforcement=enforcement_of(repository, settings, root),
    )
    run = make_context(
        assignment,
        log=log,
        keeper=Keeper(ForkServer(keepers_lock_path(repository.common_dir))),  # it is never opened
        control=StopControl(),
        shared_tree=None,
        past={story.id: of.past},
    )
    run = replace(run, repo=story.repo, own=plan.repository)
    context = story_context(story, assignment.workers[story.id], run)
    flow = flow_of(story, settings, repository.top)
    with story_tree(
        repository, settings, story, base=started.base_of(story.repo), root=root, flow=flow
    ) as workspace:
        return await _prompted(context, workspace)


async def _prompted(context: StoryContext, workspace: Workspace) -> Preview:
    """Take the story to its next session, and return its prompt."""
    story = context.story
    state = None
    if story.flow != QUICK.name:
        state = unsaved_state(story, context.settings, context.repository, workspace, context.now.docs)
    flow = FlowSteps(context, workspace, state)
    progress = context.now.progress
    if not progress.implemented and progress.checkpoint_planned_at is None:
        await flow.find_step()
    notes = await _answered(context, flow)
    _require_session(context)
    if state is not None:
        here = step_of(state.flow, context.now.place.number)
        if here is not None:
            TrackerGate(context, workspace, state).foresee(here)
        state.begin(context.now.place, retries=context.now.retry_count)
    facts = prompt_facts(context, workspace, flow.brief())
    seen = context.inside(workspace.path, workspace)
    if seen == workspace.path:  # without a view, a copy is not where the worktree will be
        real = context.run.workspace_path(story.id)
        facts = replace(
            facts,
            result_file=_moved(facts.result_file, seen, real),
            state_file=facts.state_file and _moved(facts.state_file, seen, real),
            context_file=facts.context_file and str(_moved(Path(facts.context_file), seen, real)),
        )
    return Preview(prompt=prompt_text(context, facts), notes=notes)


async def _answered(context: StoryContext, flow: FlowSteps) -> tuple[str, ...]:
    """Act on answers as a run would; say what is still open, which the next session will know more about."""
    while (decision := context.now.decision) is not None:
        title = choose.from_json(decision.question).title
        if not decision.letter:
            return (f"it asks first: {title}",)
        ended = await flow.act_on_answer()
        if ended is not None:
            raise _no_session(context, ended.reason)
    return ()


def _require_session(context: StoryContext) -> None:
    now = context.now
    if now.place.number == FLOW_DONE.number:
        raise _no_session(context, "its flow is done")
    if now.progress.implemented:
        raise _no_session(context, "its last session succeeded, and its work is checked next")


def _no_session(context: StoryContext, reason: str) -> NotFoundError:
    return NotFoundError(
        f"no session of story {context.story.id} comes next: {reason}",
        hint="`autopilot-multi plan` shows what would run.",
    )


def _moved(path: Path, old: Path, new: Path) -> Path:
    return new / path.relative_to(old) if path.is_relative_to(old) else path

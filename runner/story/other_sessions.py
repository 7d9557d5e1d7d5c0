"""A run among the other sessions of its repository: it is listed for them and checks for them.

Sessions of this run never block it. No other session is ever ended from here: the user decides whether to
wait. A story whose user has chosen to wait does not ask again.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum, auto
from functools import partial
from pathlib import Path

import trio
from trio import to_thread

from isolation.files import threads
from isolation.git.registrations import checkouts
from isolation.model import IsolationMode
from isolation.paths import current_branch
from runner.core import choose
from runner.core.events import events as ev
from runner.core.model import MULTI_STORY, StoryId, StorySnapshot
from runner.core.schedule.exclusivity import (
    ActiveSession,
    Admission,
    AdmissionResult,
    admission,
    classify,
    runs_alone,
)
from runner.core.text.names import branch_of
from runner.machine.registry import SessionEntry
from runner.machine.session_lock import SessionLock, locked
from runner.records.deviations import append_deviation
from runner.records.event_log import EventLog
from runner.records.telemetry import records_checkout
from runner.story.context.context import RunContext, StoryContext
from runner.story.presence import Presence, Unlisted, present

LOOK_SECONDS = 2.0
"""How often a story that waits for another session checks whether it has ended."""

ALONE_SECONDS = 1.0
"""How long a look that found no other session counts for the stories of the run.

Who starts in that time finds the run in the registry and keeps out of its way, if need be. Only a story that
must run alone always looks for itself: beside the run, others may start.
"""

_BESIDE, _APART = "continues in the same tree", "continues in a worktree of its own"
_KINDS = frozenset({choose.QuestionKind.BLOCKED, choose.QuestionKind.PROMOTION})


class Others(Enum):
    """What other sessions mean for the next session of a story, unless they lead to a question."""

    CLEAR = auto()
    WAITED = auto()


@asynccontextmanager
async def visible(run: RunContext) -> AsyncIterator[None]:
    """List the run for others while the block runs; dead entries of the registry are removed first."""
    if not run.settings.persistence:
        yield
        return
    registry, log = run.registry, run.log
    run_id = log.snapshot.run_id
    now = log.wall_clock()

    def prepare() -> tuple[str, str]:
        complaint = ""
        try:
            registry.sweep(now)
        except OSError as error:
            complaint = f"the registry of sessions cannot be swept: {error}"
        return current_branch(run.repository.top), complaint

    branch, complaint = await to_thread.run_sync(prepare)
    if complaint:
        _note(log, complaint)
    entry = registry.entry(run_id, mode=MULTI_STORY, run_id=run_id, branch=branch, now=now)
    note, lock = partial(_note, log), SessionLock(records_checkout(run.repository.paths))
    async with (
        present(registry, entry, note=note, clock=log.wall_clock) as listed,
        present(lock, entry, note=note, clock=log.wall_clock) as locked_,
    ):
        await listed.seen()
        await locked_.seen()
        yield


def session_visible(session_id: str, context: StoryContext) -> AbstractAsyncContextManager[Presence]:
    """List one session of a story for others while the block runs."""
    registry, log, story = context.run.registry, context.log, context.story
    entry = registry.entry(
        session_id,
        mode=context.mode,
        run_id=log.snapshot.run_id,
        story_id=story.id,
        branch=branch_of(story.id),
        now=log.wall_clock(),
    )
    listing = registry if context.settings.persistence else Unlisted()
    return present(listing, entry, note=partial(_note, log), clock=log.wall_clock)


async def check_others(context: StoryContext) -> Others | choose.Question:
    """Check which other sessions are active before one starts; a question is for the user to answer.

    After a wait the caller starts over: an answer, a stop or a kill-switch may have come.
    """
    if not context.settings.persistence:
        return Others.CLEAR
    found = await _admission(context)
    if found.verdict is Admission.PASS:
        return Others.CLEAR
    story, log = context.story, context.log
    question = _question(context.mode, found)
    kind, letter = _chosen(context.now)
    if letter == choose.CONTINUE_ANYWAY and kind is question.kind is choose.QuestionKind.PROMOTION:
        return Others.CLEAR
    if letter != choose.WAIT_FOR_OTHERS:
        return question
    for other in found.by:
        _note(log, f"waits until this has ended: {other.description}", story.id)
    log.touch()  # waiting for others does not count as silence
    with trio.move_on_after(LOOK_SECONDS):
        await context.abort()
    return Others.WAITED


async def note_deviation(context: StoryContext) -> None:
    """Append to the state file of other session managers that the story works beside a session of theirs.

    Only once for one answer, and only where the user, or the unattended default, has chosen so.
    """
    decision, run_id = context.now.decision, context.log.snapshot.run_id
    if decision is None or not decision.letter:
        return
    question = choose.from_json(decision.question)
    done = {choose.CONTINUE_ANYWAY: _BESIDE, choose.MOVE_APART: _APART}.get(decision.letter)
    if question.kind is not choose.QuestionKind.PROMOTION or done is None:
        return
    others = "; ".join(question.details)
    line = f"autopilot-multi run {run_id}: story {context.story.id} {done} beside {others}"
    try:
        await to_thread.run_sync(append_deviation, context.repository.top, line, context.log.now())
    except OSError as error:
        _note(context.log, f"the deviation could not be written: {error}", context.story.id)


async def _admission(context: StoryContext) -> AdmissionResult:
    """Return whether the story may work beside the other sessions; what is odd about them is noted."""
    alone, now = context.run.alone, trio.current_time()
    others: tuple[ActiveSession, ...] = ()
    if now >= alone.until or runs_alone(context.mode):
        others, notes = await threads.run(_others, context)
        alone.until = 0.0 if others or notes else now + ALONE_SECONDS
        for note in notes:
            _note(context.log, note)
    return admission(
        context.mode,
        others,
        own_workspace=context.settings.bg_isolation == IsolationMode.WORKTREE,
    )


def _others(context: StoryContext) -> tuple[tuple[ActiveSession, ...], tuple[str, ...]]:
    """Return the other active sessions, by the registry and by locks, and notes about them. Blocking.

    A registry that cannot be read is noted, and blocks nothing.
    """
    run_id, now, notes = context.log.snapshot.run_id, context.log.wall_clock(), []
    entries: tuple[SessionEntry, ...] = ()
    try:
        entries = context.run.registry.active(now, but=run_id)
    except OSError as error:
        notes.append(f"the registry of sessions cannot be read: {error}")
    listed = [entry for entry in entries if entry.run_id != run_id]
    notes += [entry.flaw for entry in listed if entry.flaw]
    found = (
        *(ActiveSession(description=one.description, mode=one.mode) for one in listed if not one.flaw),
        *locked(_checkouts(context), now),
    )
    notes += [f"{one.description}: {warning}" for one in found if (warning := classify(one.mode).warning)]
    flawed = (ActiveSession(description=one.description, mode=one.mode) for one in listed if one.flaw)
    return (*found, *flawed), tuple(notes)


def _checkouts(context: StoryContext) -> Iterator[Path]:
    """Return the checkouts of the repository, except the worktrees of this run's stories.

    A lock that an agent of a story leaves there belongs to the run.
    """
    run = context.log.snapshot
    shared = str(context.repository.top)
    own = {story.workspace.path for story in run.stories.values()} - {shared}
    return (path for path in checkouts(context.repository) if str(path) not in own)


def _question(mode: str, found: AdmissionResult) -> choose.Question:
    who = [other.description for other in found.by]
    if found.verdict is Admission.PROMOTION_OFFER:
        return choose.promotion_offer(others=who)
    return choose.blocked(others=who, mode=mode if runs_alone(mode) else "")


def _chosen(now: StorySnapshot) -> tuple[choose.QuestionKind | None, str]:
    """Return what the user last chose about other sessions, in this story."""
    for decision in reversed(now.decided):
        question = choose.from_json(decision.question)
        if question.kind in _KINDS:
            return question.kind, decision.letter
    return None, ""


def _note(log: EventLog, message: str, story_id: StoryId | None = None) -> None:
    """Note something once per run."""
    noted = {(one.story_id, one.message) for one in log.snapshot.notes}
    if (story_id, message) not in noted:
        log.defer(ev.Noted(story_id=story_id, message=message))

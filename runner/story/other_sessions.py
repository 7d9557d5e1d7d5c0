"""A run among the other sessions of its repository: it shows itself, looks before it works, and asks.

What belongs to this run is never in its own way. Nothing of another's is ever ended from here: a
person decides whether to wait. Who has chosen to wait is not asked again in the same story.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import trio

from isolation.git.repository import offload
from isolation.model import IsolationMode
from isolation.paths import current_branch
from runner.core import choose
from runner.core.events import events as ev
from runner.core.model import MULTI_STORY, Story, StoryId
from runner.core.schedule.exclusivity import (
    ActiveSession,
    Admission,
    AdmissionResult,
    admission,
    classify,
    runs_alone,
)
from runner.core.text.names import branch_of
from runner.machine.registry import Registry, SessionEntry
from runner.story.context.context import RunContext
from runner.story.context.stop import Level
from runner.story.presence import Presence, present

LOOK_SECONDS = 2.0
"""How often a story that waits for another session looks whether it has ended."""

_KINDS = frozenset({choose.QuestionKind.BLOCKED, choose.QuestionKind.PROMOTION})


@asynccontextmanager
async def visible(tools: RunContext) -> AsyncIterator[None]:
    """Let others see the run while the block goes on; what is long dead in the registry goes first."""
    registry, run_id = _registry(tools), tools.recorder.snapshot.run_id
    try:
        await offload(registry.sweep, tools.recorder.now())
    except OSError as error:
        _note(tools, f"the registry of sessions cannot be swept: {error}")
    entry = registry.entry(
        run_id,
        mode=MULTI_STORY,
        run_id=run_id,
        branch=await offload(current_branch, tools.repository.top),
        now=tools.recorder.now(),
    )
    async with _visible(entry, tools) as presence:
        await presence.seen()
        yield


def session_visible(
    session_id: str, story: Story, tools: RunContext
) -> AbstractAsyncContextManager[Presence]:
    """Let others see one session of a story while the block goes on."""
    entry = _registry(tools).entry(
        session_id,
        mode=story.mode,
        run_id=tools.recorder.snapshot.run_id,
        story_id=story.id,
        branch=branch_of(story.id),
        now=tools.recorder.now(),
    )
    return _visible(entry, tools)


async def held_up(story: Story, tools: RunContext, ask: Callable[[choose.Question], Awaitable[None]]) -> bool:
    """Look who else is at work before a session starts; True when the story asked or waited instead.

    The caller then begins again from the top: an answer, a stop or a kill-switch may have come.
    """
    found = await _outcome(story, tools)
    if found.verdict is Admission.PASS:
        return False
    question = _question(story, found)
    kind, letter = _chosen(story.id, tools)
    if letter == choose.GO_ON_ALL_THE_SAME and kind is question.kind is choose.QuestionKind.PROMOTION:
        return False
    if letter != choose.WAIT_FOR_OTHERS:
        await ask(question)
        return True
    for other in found.by:
        _note(tools, f"waits until this has ended: {other.who}", story.id)
    tools.recorder.touch()  # waiting for others is no silence
    with trio.move_on_after(LOOK_SECONDS):
        await tools.control.wait_for(story.id, Level.FINISH)
    return True


async def _outcome(story: Story, tools: RunContext) -> AdmissionResult:
    """Ask the registry; one that cannot be read is noted, and holds nobody up."""
    run_id = tools.recorder.snapshot.run_id
    try:
        active = await offload(partial(_registry(tools).active, tools.recorder.now(), but=run_id))
    except OSError as error:
        _note(tools, f"the registry of sessions cannot be read: {error}")
        return AdmissionResult(verdict=Admission.PASS)
    others = [entry for entry in active if entry.run_id != run_id]
    for entry in others:
        warning = entry.flaw or classify(entry.mode).warning
        if warning:
            _note(tools, warning if entry.flaw else f"{entry.who}: {warning}")
    return admission(
        story.mode,
        [ActiveSession(who=entry.who, mode=entry.mode) for entry in others],
        own_workspace=tools.settings.bg_isolation == IsolationMode.WORKTREE,
    )


def _question(story: Story, found: AdmissionResult) -> choose.Question:
    who = [other.who for other in found.by]
    if found.verdict is Admission.PROMOTION_OFFER:
        return choose.promotion_offer(others=who)
    return choose.blocked(others=who, mode=story.mode if runs_alone(story.mode) else "")


def _chosen(story_id: StoryId, tools: RunContext) -> tuple[choose.QuestionKind | None, str]:
    """Give what a person last chose about other sessions, in this story."""
    for decision in reversed(tools.recorder.snapshot.stories[story_id].decided):
        question = choose.from_json(decision.question)
        if question.kind in _KINDS:
            return question.kind, decision.letter
    return None, ""


def _registry(tools: RunContext) -> Registry:
    return Registry(tools.repository.common_dir)


def _visible(entry: SessionEntry, tools: RunContext) -> AbstractAsyncContextManager[Presence]:
    def note(message: str) -> None:
        _note(tools, message)

    return present(_registry(tools), entry, note=note, clock=tools.recorder.now)


def _note(tools: RunContext, message: str, story_id: StoryId | None = None) -> None:
    """Say something once a run."""
    said = {(one.story_id, one.message) for one in tools.recorder.snapshot.notes}
    if (story_id, message) not in said:
        tools.recorder.defer(ev.Noted(story_id=story_id, message=message))

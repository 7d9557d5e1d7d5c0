"""Where a story continues when it is opened: what the file, the folders and the journal say, and what to ask.

A run, a resume and a decision all come through here, so that nothing continues on what only one of the three
believes.
"""

from functools import partial

from trio import to_thread

from runner.core import choose
from runner.core.events import events as ev
from runner.core.model import SessionKind, StorySnapshot
from runner.flows.re_entry import Found, Journaled
from runner.flows.story_state import StoryState
from runner.records.history import Past
from runner.story.context.context import StoryContext
from runner.story.flow.memories import BLOCKER, DECISION, LAST_SESSION, remembered, texts

CIRCUIT = 3
"""A step that failed in this many consecutive runs is not begun again without the user."""


async def enter(context: StoryContext, state: StoryState, past: Past) -> choose.Question | None:
    """Find the story's step and record it; return what the user must decide before it begins."""
    before, story_id = context.now, context.story.id
    threshold = context.settings.threshold
    found = await to_thread.run_sync(partial(state.find, journaled(before, past), threshold=threshold))
    place = ev.PlaceFound(
        story_id=story_id,
        step_number=found.place.number,
        step_name=found.place.name,
        confidence=found.confidence,
        correction=found.correction,
        docs=state.flow.docs,
        cycle=found.cycle,
        retries=found.retries,
        banner=found.banner,
    )
    await context.log.record(place, *(ev.Noted(story_id=story_id, message=note) for note in found.notes))
    if before.decision is not None:
        return None  # what was asked before comes first
    return await _question(context, state, past, found)


def journaled(now: StorySnapshot, past: Past) -> Journaled:
    """Return what the journal knows of the story's position, from this run and earlier ones."""
    memories = (*past.memories, *now.memories)
    last_sessions = texts(memories, LAST_SESSION)
    worked = any(
        session.step.number == now.place.number and session.kind is SessionKind.WORK
        for session in now.sessions
    )
    return Journaled(
        place=now.place if now.placed else None,
        worked=worked and now.placed,
        cycle=now.cycle if now.placed else None,
        skipped=now.skipped_steps,
        skipped_earlier=past.skipped,
        failure=past.reason,
        decisions=texts(memories, DECISION),
        blockers=texts(memories, BLOCKER)[-1:] if past.reason else (),
        last_session=last_sessions[-1] if last_sessions else "",
    )


async def _question(
    context: StoryContext, state: StoryState, past: Past, found: Found
) -> choose.Question | None:
    asked, place = found.question, found.place
    failures = past.failures.get(place.number, 0)
    about_failure = asked is not None and asked.kind is choose.QuestionKind.FAILURE
    if failures < CIRCUIT or context.now.sessions:
        return None if about_failure and context.run.retry_failed else asked  # the flag has answered it
    pattern = f"{place.name} failed in {failures} consecutive runs, last by: {past.reason}"
    overflow = await to_thread.run_sync(state.blocked, pattern)
    await context.log.record(*remembered(context.story.id, overflow))
    return choose.skill_failed(
        number=place.number,
        name=place.name,
        sub_step=await to_thread.run_sync(state.sub_step),
        reason=f"failed in {failures} runs, last by {past.reason}",
        across_runs=True,
    )

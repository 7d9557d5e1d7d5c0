"""What happens between a story and its agents: waits, refusals, and changes of hands."""

import math

from msgspec.structs import replace

from runner.core.events import agents as ag
from runner.core.model import BUDGET, Conversation, Outage, StorySnapshot, Wait
from runner.core.text.instants import clock


def with_agent(story: StorySnapshot, body: ag.AgentBody, at: float) -> StorySnapshot:
    """Apply what happens between a story and its agent, or before it may start."""
    match body:
        case ag.ConversationSeen():
            return _named(story, body)
        case ag.AgentPaused():
            return _paused(story, body, at)
        case ag.AgentRefused():
            return replace(_unserved(story), refusal=(f"{body.agent}: {body.reason}", body.hint))
        case ag.AgentReplaced():
            return _handed(story, body, at)
        case ag.BudgetAwaited():
            return waits_for(story, BUDGET, body.reason, at)


def _named(story: StorySnapshot, body: ag.ConversationSeen) -> StorySnapshot:
    sessions = tuple(
        replace(session, conversation=body.conversation) if session.id == body.session_id else session
        for session in story.sessions
    )
    agent = next((session.agent for session in sessions if session.id == body.session_id), "")
    conversation = Conversation(id=body.conversation, agent=agent)
    history = replace(story.step_history, conversation=conversation)
    return replace(story, sessions=sessions, step_history=history)


def _paused(story: StorySnapshot, body: ag.AgentPaused, at: float) -> StorySnapshot:
    before, history = story.outage, story.step_history
    return replace(
        waits_for(_unserved(story), body.agent, body.reason, at),
        # The session had no chance, so it counts towards no limit.
        loop_sessions=max(0, story.loop_sessions - 1),
        outage=Outage(
            count=before.count + 1,
            since=at if before.since is None else before.since,
            resume_at=body.until,
        ),
        step_history=replace(
            history,
            sessions=max(0, history.sessions - 1),
            conversation=None if body.fresh else history.conversation,
        ),
        reason=body.reason,
        last_line=f"waits for {body.agent} until {clock(body.until)}: {body.reason}",
    )


def _handed(story: StorySnapshot, body: ag.AgentReplaced, at: float) -> StorySnapshot:
    """Return the story in the hands of another of its agents; failures in a row are still counted."""
    before, history = after_wait(_unserved(story) if body.unserved else story, at), story.step_history
    return replace(
        before,
        handed_to=body.by,
        away={**story.away, body.agent: body.until or math.inf},
        outage=replace(story.outage, count=story.outage.count + body.unserved, resume_at=0.0),
        loop_sessions=max(0, story.loop_sessions - body.unserved),
        step_history=replace(history, sessions=max(0, history.sessions - body.unserved)),
        last_line=f"{body.by} continues: {body.reason}",
    )


def _unserved(story: StorySnapshot) -> StorySnapshot:
    """Return the story with its newest session marked: it says nothing about the work."""
    *before, newest = story.sessions or (None,)
    return story if newest is None else replace(story, sessions=(*before, replace(newest, unserved=True)))


def waits_for(story: StorySnapshot, what: str, reason: str, at: float) -> StorySnapshot:
    """Return the story waiting for something from now on."""
    ready = after_wait(story, at)
    return replace(ready, waits=(*ready.waits, Wait(what=what, since=at, reason=reason)), waiting_since=at)


def after_wait(story: StorySnapshot, at: float) -> StorySnapshot:
    """Return the story with a wait that is over now; the same if it did not wait."""
    if story.waiting_since is None:
        return story
    wait = story.waiting
    return replace(
        story,
        waited=story.waited + max(0.0, at - story.waiting_since),
        waiting_since=None,
        waits=story.waits if wait is None else (*story.waits[:-1], replace(wait, until=at)),
    )

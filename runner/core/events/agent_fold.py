"""What events between a story and its agent do to the story, and to the run around it."""

from collections.abc import Mapping

from msgspec.structs import replace

from runner.core.events import agent_events as ae
from runner.core.model import Conversation, StorySnapshot
from runner.core.text.instants import clock


def with_agent(
    story: StorySnapshot, body: ae.ConversationSeen | ae.AgentPaused | ae.AgentRefused, at: float
) -> StorySnapshot:
    """Give the story after one of these."""
    match body:
        case ae.ConversationSeen():
            return _named(story, body)
        case ae.AgentPaused():
            return replace(
                story,
                outages=story.outages + 1,
                outage_since=at if story.outage_since is None else story.outage_since,
                resume_at=body.until,
                reason=body.reason,
                last_line=f"waits for {body.agent} until {clock(body.until)}: {body.reason}",
                # The session had no chance, so it is not one of those that the step may have.
                session_limit_used=max(0, story.session_limit_used - 1),
                conversation=None if body.fresh else story.conversation,
            )
        case ae.AgentRefused():
            return replace(story, refusal=(f"{body.agent}: {body.reason}", body.hint))


def pauses_after(pauses: Mapping[str, float], body: ae.AgentPaused) -> Mapping[str, float]:
    """Give until when agents are at their limit; a pause is never shortened."""
    if not body.everyone:
        return pauses
    return {**pauses, body.agent: max(body.until, pauses.get(body.agent, 0.0))}


def _named(story: StorySnapshot, body: ae.ConversationSeen) -> StorySnapshot:
    sessions = tuple(
        replace(session, conversation=body.conversation) if session.id == body.session_id else session
        for session in story.sessions
    )
    agent = next((session.agent for session in sessions if session.id == body.session_id), "")
    return replace(story, sessions=sessions, conversation=Conversation(id=body.conversation, agent=agent))

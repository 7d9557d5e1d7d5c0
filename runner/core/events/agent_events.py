"""What happens between a story and its agent: conversations, pauses and refusals."""

from msgspec import Struct

from runner.core.model import StoryId


class ConversationSeen(Struct, frozen=True, kw_only=True):
    """A session has named its conversation, by which a later one can go on with it."""

    story_id: StoryId
    session_id: str
    conversation: str


class AgentPaused(Struct, frozen=True, kw_only=True):
    """The agent's service failed; the session is repeated after `until` and costs no attempt.

    With `everyone` no session of this agent starts before; with `fresh` a new conversation begins.
    """

    story_id: StoryId
    agent: str
    reason: str
    until: float
    everyone: bool = False
    fresh: bool = False


class AgentRefused(Struct, frozen=True, kw_only=True):
    """The agent cannot work here at all, by its own words; the story fails at once."""

    story_id: StoryId
    agent: str
    reason: str
    hint: str

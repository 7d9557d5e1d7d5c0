"""Events about the agent of a story: its conversation, the state of its service, who continues, its money."""

from typing import Any, TypeAlias

from msgspec import Struct

from runner.core.model import StoryId


class ConversationSeen(Struct, frozen=True, kw_only=True):
    """A session has named its conversation, so that a later one can resume it."""

    story_id: StoryId
    session_id: str
    conversation: str


class AgentPaused(Struct, frozen=True, kw_only=True):
    """The agent's service failed; the session is repeated after `until` and costs no attempt.

    With `everyone` no session of this agent starts before then; with `fresh` a new conversation begins.
    """

    story_id: StoryId
    agent: str
    reason: str
    until: float
    everyone: bool = False
    fresh: bool = False


class AgentReplaced(Struct, frozen=True, kw_only=True):
    """Another of the story's agents continues; `agent` is not asked before `until`, never again if it is 0.

    With `unserved` the newest session says nothing about the work, since the agent could not do any.
    """

    story_id: StoryId
    agent: str
    by: str
    reason: str
    until: float = 0.0
    unserved: bool = False


class BudgetAwaited(Struct, frozen=True, kw_only=True):
    """The next session of the story waits for a part of the budget that others hold; `reason` has figures."""

    story_id: StoryId
    reason: str


class AgentRefused(Struct, frozen=True, kw_only=True):
    """The agent reports that it cannot work here at all; the story fails immediately."""

    story_id: StoryId
    agent: str
    reason: str
    hint: str


AgentBody: TypeAlias = ConversationSeen | AgentPaused | AgentRefused | AgentReplaced | BudgetAwaited

KINDS: dict[str, Any] = {
    "ConversationSeen": ConversationSeen,
    "AgentPaused": AgentPaused,
    "AgentRefused": AgentRefused,
    "AgentReplaced": AgentReplaced,
    "BudgetAwaited": BudgetAwaited,
}

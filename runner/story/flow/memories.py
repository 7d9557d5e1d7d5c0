"""What the journal remembers of a story, where the dialect of its state file has no section for it. Pure."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from runner.core.events.events import Remembered
from runner.core.model import Memory, StoryId

if TYPE_CHECKING:
    from runner.flows.state.transitions import Overflow

DECISION, RETRY, BLOCKER, LAST_SESSION = "decision", "retry", "blocker", "session"


def remembered(story_id: StoryId, overflow: "Overflow") -> tuple[Remembered, ...]:
    """Return the events that keep what a state file could not hold."""
    kept = [(DECISION, text) for text in overflow.decisions]
    for row in overflow.retries:
        sub_step = f", sub-step {row.sub_step}" if row.sub_step else ""
        kept.append((RETRY, f"{row.step} {row.name}{sub_step}, attempt {row.attempt}: {row.reason}"))
    kept += [(BLOCKER, text) for text in overflow.blockers]
    if overflow.last_session is not None:
        from runner.flows.re_entry import last_session_words

        kept.append((LAST_SESSION, last_session_words(overflow.last_session)))
    return tuple(Remembered(story_id=story_id, topic=topic, text=text) for topic, text in kept)


def texts(memories: Iterable[Memory], topic: str) -> tuple[str, ...]:
    """Return what is remembered about one topic, the oldest first."""
    return tuple(one.text for one in memories if one.topic == topic)

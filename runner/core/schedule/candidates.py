"""How many candidates a story may have. Pure."""

from collections.abc import Sequence

from runner.core.flow import QUICK
from runner.core.model import Story
from runner.core.settings import Settings

_SHARED = "none"


def most_candidates(story: Story, settings: Settings) -> int:
    """Return how many candidates a story may have; in a flow, or in a shared tree, it has one."""
    wanted = settings.best_of if story.best_of is None else story.best_of
    return 1 if _obstacle(story, settings) else wanted


def candidate_notes(stories: Sequence[Story], settings: Settings) -> tuple[str, ...]:
    """Say where a story asks for candidates that it cannot have."""
    found = ((story, _obstacle(story, settings)) for story in stories if (story.best_of or 1) > 1)
    return tuple(f"story {story.id}: best_of has no effect: {why}" for story, why in found if why)


def _obstacle(story: Story, settings: Settings) -> str:
    if settings.bg_isolation == _SHARED:
        return "all stories work in one tree"
    return f"it follows the flow {story.flow}" if story.flow != QUICK.name else ""

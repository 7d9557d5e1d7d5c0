"""What happens to a story that another machine works on: where it is, and that it was lost there.

The fence is the number of a story's placing. What a worker says about a story counts only with the newest
fence, so a worker that was taken for dead and comes back changes nothing.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from runner.core.model import StoryId


class StoryPlaced(Struct, frozen=True, kw_only=True):
    """Intent: a worker is about to work on the story; `instance` is its process.

    With `fresh` the agent's conversation stays on the machine where it was, and a new one begins.
    """

    story_id: StoryId
    worker: str
    instance: str
    fence: int
    fresh: bool = False


class StoryLost(Struct, frozen=True, kw_only=True):
    """The worker is gone with what it had not reported; the story continues from its last checkpoint.

    With `talks_on` the files of the agent's conversation are here, so that it continues elsewhere.
    """

    story_id: StoryId
    worker: str
    fence: int
    reason: str
    talks_on: bool = False


ClusterBody: TypeAlias = StoryPlaced | StoryLost

KINDS: dict[str, Any] = {"StoryPlaced": StoryPlaced, "StoryLost": StoryLost}

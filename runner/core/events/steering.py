"""Events about what people ask of an active run from outside: each request has exactly one answer."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from runner.core.model import StoryId


class RequestAnswered(Struct, frozen=True, kw_only=True):
    """Done: the coordinator has acted on a request; `problem` says why it did not, empty if it did."""

    request_id: int
    problem: str = ""


class AdmissionPaused(Struct, frozen=True, kw_only=True):
    """No story starts any more until admission continues; those that run are not disturbed."""

    by: str


class AdmissionContinued(Struct, frozen=True, kw_only=True):
    """Stories start again."""

    by: str


class StoriesAdded(Struct, frozen=True, kw_only=True):
    """The run has these stories, too, or instead of ones that had not started; `digests` as in its options.

    Entries are as in `RunStarted`: complete, so that a resume needs nothing else.
    """

    stories: tuple[Mapping[str, Any], ...]
    digests: Mapping[str, str]
    by: str


class StoryEdited(Struct, frozen=True, kw_only=True):
    """The file of a story was edited before the story started; `story` is its entry as it is from now on."""

    story_id: StoryId
    story: Mapping[str, Any]
    digest: str


class StoryRetried(Struct, frozen=True, kw_only=True):
    """A story that had ended is tried again, with new attempts; `note` is what the user says about it.

    With `fresh` it starts over from the base, and `kept` is where its old tip is. `unblocked` were skipped
    because of it, and wait for it again.
    """

    story_id: StoryId
    by: str
    note: str = ""
    fresh: bool = False
    kept: str = ""
    unblocked: tuple[str, ...] = ()


SteeringBody: TypeAlias = (
    RequestAnswered | AdmissionPaused | AdmissionContinued | StoriesAdded | StoryEdited | StoryRetried
)

# As in `events.py`: a class may be renamed, its kind in the journal may not.
KINDS: dict[str, Any] = {
    "RequestAnswered": RequestAnswered,
    "AdmissionPaused": AdmissionPaused,
    "AdmissionContinued": AdmissionContinued,
    "StoriesAdded": StoriesAdded,
    "StoryEdited": StoryEdited,
    "StoryRetried": StoryRetried,
}

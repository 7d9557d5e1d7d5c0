"""Events about the drafts of stories on a forge: each outward act is an intent here before it begins.

Acts can be repeated: a draft is looked up by its branch before it is created, and an answer has a mark by
which it is found again.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from runner.core.model import StoryId


class DraftPlanned(Struct, frozen=True, kw_only=True):
    """Intent: a branch is about to be pushed, and its draft opened or updated, with a status for `commit`."""

    story_id: StoryId
    branch: str
    base: str
    commit: str
    verdict: str


class DraftPublished(Struct, frozen=True, kw_only=True):
    """Done: the draft shows `commit`, against `base`; `created` if it was not there before."""

    story_id: StoryId
    number: int
    url: str
    base: str
    commit: str
    digest: str
    verdict: str
    created: bool = False


class DraftRefused(Struct, frozen=True, kw_only=True):
    """A planned draft was given up, since it must not be or cannot be made as things are."""

    story_id: StoryId
    reason: str


class ReviewTaken(Struct, frozen=True, kw_only=True):
    """Intent: what others say about a draft leads to another attempt of its story, and is answered after it.

    `items` are as in `core/progress/draft.py`. `before` is the commit that they saw, `advice` what the user
    has decided about them.
    """

    story_id: StoryId
    number: int
    items: tuple[Mapping[str, Any], ...]
    before: str = ""
    advice: str = ""


class ReviewAnswered(Struct, frozen=True, kw_only=True):
    """Done: these items are answered, or left alone for the `reason`; they are not looked at again."""

    story_id: StoryId
    items: tuple[str, ...]
    reason: str = ""


class DraftQueuePlanned(Struct, frozen=True, kw_only=True):
    """Intent: the draft is about to be marked as ready and handed to the queue of the forge."""

    story_id: StoryId
    number: int
    style: str


class DraftQueued(Struct, frozen=True, kw_only=True):
    """Done: the forge merges it when its own rules are met."""

    story_id: StoryId
    number: int


DraftBody: TypeAlias = (
    DraftPlanned
    | DraftPublished
    | DraftRefused
    | ReviewTaken
    | ReviewAnswered
    | DraftQueuePlanned
    | DraftQueued
)

# As in `events.py`: a class may be renamed, its kind in the journal may not.
KINDS: dict[str, Any] = {
    "DraftPlanned": DraftPlanned,
    "DraftPublished": DraftPublished,
    "DraftRefused": DraftRefused,
    "ReviewTaken": ReviewTaken,
    "ReviewAnswered": ReviewAnswered,
    "DraftQueuePlanned": DraftQueuePlanned,
    "DraftQueued": DraftQueued,
}

"""Events about work items in a tracker: what is about to be done there, and what came of it."""

from typing import Any, TypeAlias

from msgspec import Struct

from runner.core.model import StoryId


class WorkItemPlanned(Struct, frozen=True, kw_only=True):
    """Intent: something is about to be created or linked in the tracker; `marker` names it, also there."""

    story_id: StoryId
    marker: str
    act: str


class WorkItemKept(Struct, frozen=True, kw_only=True):
    """Done: what was intended is there; `item` is the id of the work item."""

    story_id: StoryId
    marker: str
    item: str


WorkItemBody: TypeAlias = WorkItemPlanned | WorkItemKept

# As in `events.py`: a class may be renamed, its kind in the journal may not.
KINDS: dict[str, Any] = {
    "WorkItemPlanned": WorkItemPlanned,
    "WorkItemKept": WorkItemKept,
}

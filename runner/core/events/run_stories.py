"""The stories of a run as its events have them: the plan, what was added to it, and edited files."""

from collections.abc import Iterable, Mapping
from typing import Any

from runner.core.errors import JournalError
from runner.core.events import steering
from runner.core.events.events import Event, RunStarted
from runner.core.events.story_json import from_json
from runner.core.model import Story, StoryId
from runner.core.schedule.graph import ordered


def entries_of(events: Iterable[Event]) -> dict[StoryId, Mapping[str, Any]]:
    """Return the entries of all stories, as JSON; the newest one of each counts."""
    found: dict[StoryId, Mapping[str, Any]] = {}
    for event in events:
        match event.body:
            case RunStarted() | steering.StoriesAdded():
                found |= {StoryId(entry["id"]): entry for entry in event.body.stories}
            case steering.StoryEdited():
                found[event.body.story_id] = event.body.story
            case _:
                pass
    return found


def story_in(entry: Mapping[str, Any]) -> Story:
    """Return the story of an entry; raises JournalError if it was damaged."""
    try:
        return from_json(entry)
    except ValueError as error:
        raise JournalError(
            f"the journal holds a plan in which story {entry['id']} cannot be read: {error}",
            hint="run its stories again with `autopilot-multi run`; branches and worktrees are not affected.",
        ) from error


def stories_of(events: Iterable[Event]) -> tuple[Story, ...]:
    """Return all stories of a run in their order; raises JournalError if an entry cannot be read."""
    listed = list(events)
    stories = tuple(story_in(entry) for entry in entries_of(listed).values())
    # The plan has an order of its own, from how long stories took before; an addition makes a new one.
    added = any(isinstance(event.body, steering.StoriesAdded) for event in listed)
    return ordered(stories) if added else stories

"""What the dashboard shows besides the run: a selection, a filter, a pane, a line of answer. Values only."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from runner.core.model import RunSnapshot, Status, StoryId, StorySnapshot
from runner.core.outlook.left import Outlook


class Filter(StrEnum):
    """Which stories are shown."""

    ALL = "all"
    WORKING = "working"
    NEEDS_YOU = "needs you"
    ENDED = "ended"

    @property
    def next(self) -> "Filter":
        """The one after it; after the last comes the first."""
        every = list(Filter)
        return every[(every.index(self) + 1) % len(every)]


class PaneText(Struct, frozen=True, kw_only=True):
    """What stands below the table: a title, lines that stay, and lines of which a part may be shown.

    `head` and `lines` are safe for a terminal; they are wrapped, not cut. `follows`: the end is shown, and
    `scroll` counts from there; else it counts from the first line. `must_show`: the table gives way to it.
    """

    title: str
    head: tuple[str, ...] = ()
    lines: Sequence[str] = ()
    scroll: int = 0
    follows: bool = False
    must_show: bool = False
    colored: bool = False


class Picture(Struct, frozen=True, kw_only=True):
    """How a run is shown; the plain dashboard is the one without anything in it.

    `keys` is the line that says which keys there are, `answer` what became of the last one.
    """

    outlook: Outlook = Outlook()
    selected: StoryId | None = None
    filter: Filter = Filter.ALL
    text: str = ""
    pane: PaneText | None = None
    answer: str = ""
    keys: str = ""


def shown_stories(run: RunSnapshot, chosen: Filter, text: str = "") -> list[StorySnapshot]:
    """Return the stories that pass a filter, in their order."""
    return [story for story in run.stories.values() if _passes(story, chosen) and _matches(story, text)]


def _passes(story: StorySnapshot, chosen: Filter) -> bool:
    match chosen:
        case Filter.ALL:
            return True
        case Filter.WORKING:
            return story.status is Status.RUNNING
        case Filter.NEEDS_YOU:
            return story.decision is not None and not story.decision.letter
        case Filter.ENDED:
            return story.status.final


def _matches(story: StorySnapshot, text: str) -> bool:
    wanted = text.casefold()
    return wanted in story.id.casefold() or wanted in story.title.casefold()

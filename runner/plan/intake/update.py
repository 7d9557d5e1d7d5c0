"""What an import does with each story: written, updated, unchanged, or kept as it is, and why.

Decides, and writes nothing. A story that has started is not changed under the hands of those who work on it;
one that somebody has edited is theirs.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from isolation.git.repository import Repository
from isolation.paths import journal_path
from runner.core.errors import EmptyBacklogError, JournalError, NotFoundError
from runner.core.events.events import StoryStarted
from runner.core.model import Story, StoryId
from runner.core.text.names import branch_of
from runner.plan.intake.story_file import is_untouched, story_file
from runner.plan.stories.files import read_text
from runner.plan.stories.sources import load_stories
from runner.records.journal import Journal


class Change(StrEnum):
    """What becomes of the file of a story."""

    NEW = "new"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    STARTED = "started"
    EDITED = "edited"
    TAKEN = "taken"


class FileChange(Struct, frozen=True, kw_only=True):
    """One story of an import: its file, relative to the repository, and its text if it is to be written."""

    story: Story
    path: str
    change: Change
    text: str = ""

    @property
    def line(self) -> str:
        """What is said about it."""
        match self.change:
            case Change.NEW | Change.UPDATED | Change.UNCHANGED:
                return f"{self.change.value} {self.path}: {self.story.title}"
            case Change.STARTED:
                return f"kept {self.path}: the issue has changed, but the story has already started"
            case Change.EDITED:
                return f"kept {self.path}: the issue has changed, but you have edited the story"
            case Change.TAKEN:
                return f"kept {self.path}: the story {self.story.id} is not from {self.story.origin}"


def started_stories(repository: Repository, stories: Iterable[Story]) -> frozenset[StoryId]:
    """Return which of these stories have begun: in any run, or with a branch of their own."""
    begun: set[StoryId] = set()
    try:
        with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
            for event in journal.events_of("StoryStarted"):
                if isinstance(event.body, StoryStarted):
                    begun.add(event.body.story_id)
    except (JournalError, NotFoundError):
        pass  # there was no run yet
    return frozenset(
        story.id for story in stories if story.id in begun or repository.branch_tip(branch_of(story.id))
    )


def stories_there(top: Path, folder: str) -> dict[StoryId, Story]:
    """Return the stories that are there already; raises BacklogError if a file cannot be read.

    One bad file must not let an import write a story twice.
    """
    try:
        return {story.id: story for story in load_stories((), top=top, default=folder)}
    except EmptyBacklogError:
        return {}


def plan_files(
    stories: Iterable[Story],
    *,
    there: Mapping[StoryId, Story],
    top: Path,
    folder: str,
    started: Collection[StoryId],
) -> tuple[FileChange, ...]:
    """Decide about the file of each story; one that is `there` already may be in any file."""
    return tuple(_decide(story, there.get(story.id), top, folder, started) for story in stories)


def _decide(
    story: Story, old: Story | None, top: Path, folder: str, started: Collection[StoryId]
) -> FileChange:
    path = old.source if old is not None else f"{folder}/{story.id}.md"
    text = story_file(story)
    if old is None and not (top / path).exists():
        return FileChange(story=story, path=path, change=Change.NEW, text=text)
    # A list holds several stories; only its author changes it.
    if old is None or old.origin != story.origin or "#" in path:
        return FileChange(story=story, path=path, change=Change.TAKEN)
    now = read_text(top / path, path)
    if now == text:
        return FileChange(story=story, path=path, change=Change.UNCHANGED)
    if not is_untouched(now):
        return FileChange(story=story, path=path, change=Change.EDITED)
    if story.id in started:
        return FileChange(story=story, path=path, change=Change.STARTED)
    return FileChange(story=story, path=path, change=Change.UPDATED, text=text)

"""A folder with story files, for the tests that read stories."""

from pathlib import Path

import pytest

from runner.core.errors import BacklogError
from runner.core.model import Story
from runner.plan.stories.sources import load_stories


class Backlog:
    """A folder with story files, and the reader pointed at it."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def put(self, path: str, text: str | bytes) -> Path:
        """Write a file below the top."""
        file = self.top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def load(self, *sources: str, cwd: Path | None = None) -> tuple[Story, ...]:
        """Read the stories that the sources name."""
        return load_stories(sources, top=self.top, default="stories", cwd=cwd)

    def one(self, text: str | bytes, path: str = "stories/a.md") -> Story:
        """Read the only story of one file."""
        self.put(path, text)
        (story,) = self.load(path)
        return story

    def error(self, *sources: str) -> BacklogError:
        """Read, and return the error."""
        with pytest.raises(BacklogError) as caught:
            self.load(*sources)
        assert caught.value.hint, "every error says what to do"
        return caught.value

    def refused(self, text: str | bytes, path: str = "stories/a.md") -> BacklogError:
        """Read one file, and return the error."""
        self.put(path, text)
        return self.error(path)


def ids(stories: tuple[Story, ...]) -> list[str]:
    """Return the stories' ids as plain text."""
    return [str(story.id) for story in stories]

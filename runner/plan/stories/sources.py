"""The stories of a run, from what the user named: files, folders, lists, ids or prompts.

Each story is checked by itself; the graph checks how they fit together. A story that is named twice is read
once. Messages name files relative to the top of the repository.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.core.errors import BacklogError, EmptyBacklogError, UnknownStoryError
from runner.core.model import Story, StoryId
from runner.core.schedule.graph import closure
from runner.core.text.names import did_you_mean_story, id_problem, one_line, shown, slug, unique
from runner.plan.stories.entry import stories_of
from runner.plan.stories.files import (
    LIST_SUFFIXES,
    Entry,
    has_front_matter,
    list_entries,
    markdown_entry,
    read_text,
)
from runner.plan.stories.keys import require_sound

COMMAND_LINE = "command line"
"""The source of a story that is a prompt."""
_TITLE = 60
_NO_STORIES = "`autopilot-multi init` writes a first story; or give a file, a folder, or a prompt in quotes."


def load_stories(
    sources: Sequence[str], *, top: Path, default: str, cwd: Path | None = None
) -> tuple[Story, ...]:
    """Read the stories that `sources` name, in that order.

    A source is, in this order: a path that exists (relative to `cwd`, then to `top`), the id of a
    story in the `default` folder (its dependencies come along), or a prompt: anything with white
    space in it. Without sources the `default` folder is read.
    """
    reader = _Reader(top=top, cwd=cwd or top, default=default)
    if not sources:
        return _refuse_duplicates(reader.require_backlog())
    found: list[Story | str] = []
    for source in sources:
        stories = reader.resolve(source)
        found.extend([source] if stories is None else [story for story in stories if story not in found])
    files = _refuse_duplicates([item for item in found if isinstance(item, Story)])
    taken = {str(story.id) for story in files}
    return tuple(item if isinstance(item, Story) else _from_prompt(item, taken) for item in found)


class _Reader:
    """Resolves sources; reads the default folder at most once."""

    def __init__(self, *, top: Path, cwd: Path, default: str) -> None:
        self.top = top
        self.cwd = cwd
        self.default = default
        self._backlog: list[Story] | None = None

    def require_backlog(self) -> list[Story]:
        """Return the stories of the default folder, which must have some."""
        if not (self.top / self.default).exists():
            raise EmptyBacklogError(f"no folder '{self.default}' with stories", hint=_NO_STORIES)
        if not self.backlog():
            raise EmptyBacklogError(f"no stories in '{self.default}'", hint=_NO_STORIES)
        return self.backlog()

    def backlog(self) -> list[Story]:
        """Return the stories of the default folder; empty if it does not exist."""
        if self._backlog is None:
            path = self.top / self.default
            self._backlog = stories_of(self._path(path)) if path.exists() else []
        return self._backlog

    def resolve(self, source: str) -> list[Story] | None:
        """Read what a source names; None when it is a prompt."""
        path = self._existing(source)
        if path is not None:
            stories = stories_of(self._path(path))
            if not stories:
                raise BacklogError(f"no stories in {self._name(path)}", hint=_NO_STORIES)
            return stories
        if any(character.isspace() for character in source.strip()):
            return None
        if id_problem(source) is None and Path(source).suffix not in {".md", *LIST_SUFFIXES}:
            return self._by_id(source)
        if not source.strip():
            raise BacklogError("an empty argument names no story", hint=_NO_STORIES)
        raise UnknownStoryError(
            f"no such file or folder: {shown(source)}", name=source, hint=self._hint(source)
        )

    def _by_id(self, name: str) -> list[Story]:
        backlog = self.backlog()
        if not any(story.id == name for story in backlog):
            raise UnknownStoryError(
                f"'{name}' is neither a file nor a story in {self.default}/",
                name=name,
                hint=self._hint(name),
            )
        return list(closure(backlog, [name]))

    def _hint(self, name: str) -> str:
        return did_you_mean_story(name, self.backlog()) or "a prompt needs quotes and more than one word."

    def _existing(self, source: str) -> Path | None:
        if not source.strip():
            return None
        for folder in (self.cwd, self.top):
            try:
                if (folder / source).exists():
                    return folder / source
            except (
                OSError,
                ValueError,
            ):  # a prompt may be too long for a path, or contain what a path cannot
                return None
        return None

    def _path(self, path: Path) -> Iterator[Entry]:
        if not path.is_dir():
            if path.suffix.lower() not in {".md", ".markdown", *LIST_SUFFIXES}:
                raise BacklogError(
                    f"{self._name(path)} is not a story file",
                    hint="stories are Markdown files, or lists in YAML, TOML or JSON.",
                )
            yield from self._file(path, named=True)
            return
        try:
            children = sorted(path.iterdir(), key=lambda child: child.name)
        except OSError as error:
            raise BacklogError(
                f"cannot read {self._name(path)}: {error.strerror}", hint="check its permissions."
            ) from error
        for child in children:
            if child.name.startswith("."):
                continue
            if child.is_dir():
                # A linked folder could lead back up, in an endless loop.
                if not child.is_symlink():
                    yield from self._path(child)
            elif child.suffix.lower() in {".md", *LIST_SUFFIXES}:
                yield from self._file(child, named=False)

    def _file(self, path: Path, *, named: bool) -> Iterator[Entry]:
        name = self._name(path)
        text = read_text(path, name)
        if path.suffix.lower() in LIST_SUFFIXES:
            yield from list_entries(path, name, text, required=named)
        elif named or path.stem.lower() != "readme" or has_front_matter(text):
            yield markdown_entry(path, name, text)

    def _name(self, path: Path) -> str:
        """Return a path for messages: relative to the repository if it is inside."""
        # Path.resolve would follow links and change the name that the user gave.
        absolute, top = (Path(os.path.abspath(item)) for item in (path, self.top))  # noqa: PTH100  see above
        return absolute.relative_to(top).as_posix() if absolute.is_relative_to(top) else str(absolute)


def _refuse_duplicates(stories: Sequence[Story]) -> tuple[Story, ...]:
    seen: dict[StoryId, Story] = {}
    for story in stories:
        earlier = seen.setdefault(story.id, story)
        if earlier is not story:
            raise BacklogError(
                f"two stories have the id '{story.id}': {earlier.source} and {story.source}",
                hint="give one of them another 'id'.",
            )
    return tuple(stories)


def _from_prompt(prompt: str, taken: set[str]) -> Story:
    """Make a story from a prompt and add its id to `taken`."""
    text = prompt.strip()
    try:
        require_sound(text)
    except ValueError as error:
        raise BacklogError(f"the prompt '{text!a}' {error}", hint="type it as UTF-8 text.") from error
    name = unique(slug(text), taken)
    taken.add(name)
    first = one_line(text.split("\n", 1)[0])
    title = first if len(first) <= _TITLE else first[:_TITLE].rsplit(" ", 1)[0] + "…"
    return Story(id=StoryId(name), title=title or name, prompt=text, source=COMMAND_LINE)

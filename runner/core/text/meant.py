"""Which story a person meant by a name that is no story's id.

People write what they see: the name of a file whose story has another id, a title, capitals.
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import PurePosixPath

from runner.core.model import Story

_MOST = 3


def meant(name: str, stories: Iterable[Story]) -> str:
    """Ask whether another story was meant, by its id and its file; nothing when none comes near."""
    known = list(stories)
    found = next((group for group in _guesses(name, known) if group), [])
    named = [f"'{story.id}'{_where(story)}" for story in found[:_MOST]]
    return f"did you mean {' or '.join(named)}?" if named else ""


def _guesses(name: str, stories: Sequence[Story]) -> Iterator[list[Story]]:
    """Give what it may stand for, the surest first."""
    wanted = name.strip().casefold()
    yield [story for story in stories if story.id == wanted]
    yield [story for story in stories if wanted in _names_of_file(story)]
    yield [story for story in stories if story.title.casefold() == wanted]
    near = get_close_matches(wanted, [story.id for story in stories], n=1)
    yield [story for story in stories if story.id in near]


def _names_of_file(story: Story) -> set[str]:
    """Give the names of the file that holds this story alone."""
    if not story.source or "#" in story.source:
        return set()
    path = PurePosixPath(story.source.casefold())
    return {str(path), str(path.with_suffix("")), path.name, path.stem}


def _where(story: Story) -> str:
    return f" ({story.source})" if story.source else ""

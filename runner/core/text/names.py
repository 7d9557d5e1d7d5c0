"""Names: what a story may be called, how ids are made from text, and which name the user probably meant.

An id becomes a branch (`autopilot/<id>`), a folder and a line in a table, so it obeys the rules
both of git references and of plain file names.
"""

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from isolation.patterns import pattern
from runner.core.model import Story
from runner.core.text.screen import neutral, shorten

MAX_ID = 63
ID_RULE = "a-z, 0-9, '.', '_' and '-', at most 63 of them, the first a letter or a digit"

BRANCH_PREFIX = "autopilot/"
CANDIDATE_PREFIX = "autopilot-candidates/"
_ID = pattern(rf"[a-z0-9][a-z0-9._-]{{0,{MAX_ID - 1}}}")
_SLUG = 40
_SHOWN = 60
_LARGEST = 10**300  # about where a float ends
_MOST_SUGGESTIONS = 3


def id_problem(text: str) -> str | None:
    """Return why `text` cannot be a story's id; None when it can."""
    if not _ID.fullmatch(text):
        return f"an id is made of {ID_RULE}"
    if ".." in text:
        return "git allows no '..' in a branch name"
    if text.endswith((".", ".lock")):
        return "git allows no branch name that ends with '.' or '.lock'"
    return None


def branch_of(story_id: str) -> str:
    """Return the branch that a story's commits go to."""
    return BRANCH_PREFIX + story_id


def candidate_branch(story_id: str, run_id: str, number: int) -> str:
    """Return the branch on which a candidate is kept that is not, or not yet, a story's result."""
    return f"{CANDIDATE_PREFIX}{story_id}/{run_id}-{number}"


def slug(text: str) -> str:
    """Make a valid id from any text."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    made = ""
    for word in re.findall(r"[a-z0-9]+", plain):
        longer = f"{made}-{word}" if made else word[:_SLUG]
        if len(longer) > _SLUG:
            break
        made = longer
    return made or "story"


def unique(name: str, taken: Container[str]) -> str:
    """Return `name`, or `name-2`, `name-3`, … : the first that is not taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def one_line(text: str) -> str:
    """Fold white space, and drop what a terminal would obey instead of show."""
    return " ".join(neutral(text).split())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name as a sentence, or nothing when none is near; case does not matter."""
    from difflib import get_close_matches  # only for mistakes

    # Sorted, so that the same typo always gets the same suggestion.
    folded = {item.casefold(): item for item in sorted(known)}
    close = get_close_matches(name.casefold(), folded, n=1)
    return f"did you mean '{folded[close[0]]}'?" if close else ""


def did_you_mean_story(name: str, stories: Iterable[Story]) -> str:
    """Suggest the stories that were probably meant, by id and file, or nothing when none is near.

    People write what they see: the name of a file, a title, capitals. Only the id counts.
    """
    known = list(stories)
    found = next((group for group in _guesses(name, known) if group), [])
    named = [f"'{story.id}'{_where(story)}" for story in found[:_MOST_SUGGESTIONS]]
    return f"did you mean {' or '.join(named)}?" if named else ""


def _guesses(name: str, stories: Sequence[Story]) -> Iterator[list[Story]]:
    """Yield the stories that a name may stand for, the surest guess first."""
    wanted = name.strip().casefold()
    yield [story for story in stories if story.id == wanted]
    yield [story for story in stories if wanted in _names_of_file(story)]
    yield [story for story in stories if story.title.casefold() == wanted]
    from difflib import get_close_matches

    near = get_close_matches(wanted, [story.id for story in stories], n=1)
    yield [story for story in stories if story.id in near]


def _names_of_file(story: Story) -> set[str]:
    """Return the names of the file that holds this story alone."""
    if not story.source or "#" in story.source:
        return set()
    path = PurePosixPath(story.source.casefold())
    return {str(path), str(path.with_suffix("")), path.name, path.stem}


def _where(story: Story) -> str:
    return f" ({story.source})" if story.source else ""


def shown(value: object) -> str:  # noqa: PLR0911  one return for each kind
    """Return a wrong value for a message: short, however large it is, and as files write it."""
    match value:
        case str():
            return f"'{shorten(neutral(value), _SHOWN)}'"
        case bool():
            return "true" if value else "false"
        case int() if abs(value) > _LARGEST:
            return "a number that is too large"
        case int() | float():
            return f"{value:g}"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"

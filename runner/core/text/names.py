"""Names: what a story may be called, how ids and titles are made from words, which name was meant.

An id becomes a branch (`autopilot/<id>`), a folder and a line in a table, so it obeys the rules
of git references and of plain file names at once.
"""

import re
import unicodedata
from collections.abc import Container, Iterable
from difflib import get_close_matches

from runner.core.text.screen import neutral, shorten

MAX_ID = 63
ID_RULE = "a-z, 0-9, '.', '_' and '-', at most 63 of them, the first a letter or a digit"

BRANCH_PREFIX = "autopilot/"
_ID = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{MAX_ID - 1}}}")
_SLUG = 40
_SHOWN = 60


def id_problem(text: str) -> str | None:
    """Say in words why `text` cannot be a story's id; None when it can."""
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


def slug(text: str) -> str:
    """Make an id from words; the result always is one."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    made = ""
    for word in re.findall(r"[a-z0-9]+", plain):
        longer = f"{made}-{word}" if made else word[:_SLUG]
        if len(longer) > _SLUG:
            break
        made = longer
    return made or "story"


def unique(name: str, taken: Container[str]) -> str:
    """Give `name`, or `name-2`, `name-3`, … : the first that is not taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def one_line(text: str) -> str:
    """Fold white space, and drop what a terminal would obey instead of show."""
    return " ".join(neutral(text).split())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name as a sentence, or nothing when none is near; capitals do not count."""
    folded = {item.casefold(): item for item in sorted(known)}
    close = get_close_matches(name.casefold(), folded, n=1)
    return f"did you mean '{folded[close[0]]}'?" if close else ""


def shown(value: object) -> str:
    """Show a wrong value in a message: short, however large it is, and as files write it."""
    match value:
        case str():
            return f"'{shorten(neutral(value), _SHOWN)}'"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"{value:g}"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"

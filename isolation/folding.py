"""Names as a file system that folds case sees them. Pure.

There `README.md`, `readme.md` and both spellings of an accent are one file. A folded text is in the
composed form and in lower case by the rules of Unicode, so that two names of one file fold to the
same text. Folding a folded text changes nothing.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[str, str], ...]

_LAST_THAT_FOLDS = 0x2FFFF
"""Beyond the supplementary ideographs no character has another form."""


def fold(text: str) -> str:
    """Give the text that all spellings of the same name share."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def is_folded(character: str) -> bool:
    """Tell whether a character can occur in folded text by itself."""
    return fold(character) == character


@lru_cache(maxsize=256)
def fold_ranges(ranges: Ranges) -> Ranges:
    """Give the folded characters of some ranges, in order.

    A character that folds to several stays as it is: a class stands for one character, and no folded
    name has this one.
    """
    folded: set[int] = set()
    beyond: list[tuple[str, str]] = []
    for first, last in ranges:
        for point in range(ord(first), min(ord(last), _LAST_THAT_FOLDS) + 1):
            image = fold(chr(point))
            folded.add(ord(image) if len(image) == 1 else point)
        if ord(last) > _LAST_THAT_FOLDS:
            beyond.append((max(first, chr(_LAST_THAT_FOLDS + 1)), last))
    return (*_ranges(sorted(folded)), *beyond)


def _ranges(points: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Join neighbours."""
    start = end = -1
    for point in points:
        if point != end + 1:
            if start >= 0:
                yield chr(start), chr(end)
            start = point
        end = point
    if start >= 0:
        yield chr(start), chr(end)

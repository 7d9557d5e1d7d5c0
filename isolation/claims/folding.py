"""Names as a file system that folds case sees them. Pure.

There `README.md`, `readme.md` and both spellings of an accent are one file. A folded text is in the
composed form and in lower case by the rules of Unicode, so that two names of one file fold to the
same text. Folding a folded text changes nothing.
"""

import unicodedata
from bisect import bisect_left
from functools import cache
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[str, str], ...]

_LAST_THAT_FOLDS = 0x2FFFF
"""Beyond the supplementary ideographs no character has another form."""


def fold(text: str) -> str:
    """Return the text that all spellings of the same name share."""
    # Case folding can decompose characters, so its result is composed once more.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def is_folded(character: str) -> bool:
    """Return whether a character can occur in folded text by itself."""
    return fold(character) == character


def fold_ranges(ranges: Ranges) -> Ranges:
    """Add to some ranges of characters what their members fold to.

    The members themselves stay: no folded text has those that change. A character that folds to several
    adds nothing, since a class matches one.
    """
    images = {
        image
        for first, last in ranges
        for character, image in _changing()[bisect_left(_changing(), (first, "")) :]
        if character <= last
    }
    new = (image for image in sorted(images) if not any(first <= image <= last for first, last in ranges))
    return (*ranges, *((image, image) for image in new))


@cache
def _changing() -> list[tuple[str, str]]:
    """Return the characters that fold to another one, and that one."""
    characters = map(chr, range(_LAST_THAT_FOLDS + 1))
    folded = ((character, fold(character)) for character in characters)
    return [(character, image) for character, image in folded if image != character and len(image) == 1]

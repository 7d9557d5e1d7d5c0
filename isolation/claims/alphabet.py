"""Which characters a search must try: one for each combination of character classes. Pure.

Among characters that the given classes do not distinguish, the most readable one is tried, so that an example
path looks like one that a user might have written. No name has `/` or NUL in it.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from string import ascii_lowercase, ascii_uppercase, digits, punctuation

from isolation.claims.folding import is_folded
from isolation.claims.globs import OneOf

_NEVER = "\0/"
_READABLE = tuple(
    dict.fromkeys(ascii_lowercase + digits + ascii_uppercase + "_-." + punctuation.replace("/", "") + " ")
)
_BEYOND = 0x110000
_TRIED = 64


@lru_cache(maxsize=1024)
def representatives(classes: tuple[OneOf, ...], *, folding: bool) -> tuple[tuple[str, int], ...]:
    """Return one character for each set of classes that some character is in, readable ones first.

    The set is a bit mask, in the order of the classes. With `folding`, only characters that occur in folded
    names are returned.
    """
    found: dict[int, str] = {}
    readable = [character for character in _READABLE if not folding or is_folded(character)]
    # Among the others, too, printable ones come first.
    others = sorted(_outside_readable(classes, folding=folding), key=str.isprintable, reverse=True)
    for character in readable + others:
        members = sum(1 << number for number, one in enumerate(classes) if _within(character, one))
        found.setdefault(members, character)
    return tuple((character, members) for members, character in found.items())


def _within(character: str, one: OneOf) -> bool:
    for first, last in one.ranges:
        if first <= character <= last:
            return not one.negated
    return one.negated


def _outside_readable(classes: Iterable[OneOf], *, folding: bool) -> Iterator[str]:
    """Yield a character from every range in which no class begins or ends."""
    cuts = {0, ord("/"), ord("/") + 1}
    for one in classes:
        for first, last in one.ranges:
            cuts |= {ord(first), ord(last) + 1}
    ordered = sorted(cuts)
    for start, end in zip(ordered, [*ordered[1:], _BEYOND], strict=True):
        usable = (
            character
            for character in map(chr, range(start, end))
            if character not in _NEVER and (not folding or is_folded(character))
        )
        some = tuple(islice(usable, _TRIED))
        if some:
            yield next((character for character in some if character.isprintable()), some[0])

"""Names of one path component that two patterns share, and which other patterns they fit too. Pure.

All patterns read the same characters side by side, the shortest texts first. A search that takes more
steps than its budget ends with `TooComplexError`: what is not proven does not pass.
"""

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import TypeAlias

from isolation.claims.alphabet import letters
from isolation.claims.globs import AnyText, Name, OneOf
from isolation.claims.nfa import Track

_NO_NAMES = tuple(
    Name(tokens=tuple(OneOf(ranges=((character, character),)) for character in text)) for text in (".", "..")
)
"""What no file can be called."""

_LONG = 256
"""How many positions are stepped on at the price of one."""

Fitting: TypeAlias = frozenset[Name]
_State: TypeAlias = tuple[int, ...]


class TooComplexError(Exception):
    """The budget is used up before there is an answer."""


class Budget:
    """How many steps a search may still take."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Count steps; more than there are is a `TooComplexError`."""
        self.left -= steps
        if self.left < 0:
            raise TooComplexError


def common_names(
    first: Name, second: Name, others: Sequence[Name], *, budget: Budget, folding: bool
) -> list[tuple[str, Fitting]]:
    """Give names that fit both, shortest first, each with those of the others that it fits too.

    A name is left out when one that is no longer fits fewer of the others.
    """
    for one, another in ((first, second), (second, first)):
        if one.literal is not None:
            budget.spend(1 + len(others))
            return _alone(one.literal, another, others)
    if _apart(first, second):
        return []
    found: list[tuple[str, Fitting]] = []
    # A pattern that no such text fits, as most, need not be kept from it.
    barred = [name for name in _NO_NAMES if first.matches(name.head) and second.matches(name.head)]
    for text, fitting in _walk((first, second, *barred, *others), budget=budget, folding=folding):
        if fitting.isdisjoint(_NO_NAMES) and not any(less <= fitting for _, less in found):
            found.append((text, fitting))
            if not fitting:
                break
    return [
        (text, fitting)
        for text, fitting in found
        if not any(less < fitting and len(other) == len(text) for other, less in found)
    ]


def _apart(first: Name, second: Name) -> bool:
    """Tell whether the beginnings or the ends alone show that no text fits both."""
    heads = first.head.startswith(second.head) or second.head.startswith(first.head)
    tails = first.tail.endswith(second.tail) or second.tail.endswith(first.tail)
    return not (heads and tails)


def _alone(text: str, wanted: Name, others: Sequence[Name]) -> list[tuple[str, Fitting]]:
    """Answer for the only name that there is."""
    if not wanted.matches(text) or any(name.matches(text) for name in _NO_NAMES):
        return []
    return [(text, frozenset(name for name in others if name.matches(text)))]


def _walk(patterns: Sequence[Name], *, budget: Budget, folding: bool) -> Iterator[tuple[str, Fitting]]:
    """Give texts that fit the first two patterns, with those of the rest that fit; nothing twice.

    The first two are followed one position at a time: it is enough that some way leads to the end. Of the
    rest all positions are kept, since a text fits unless no way does.
    """
    tracks = [_track(pattern) for pattern in patterns]
    choices = _choices(patterns, budget=budget, folding=folding)
    length = sum(len(pattern.tokens) for pattern in patterns)
    cost = len(choices) * len(tracks) * (1 + length // _LONG)
    frontier = [("", state) for state in _single(tuple(track.start for track in tracks))]
    seen = {state for _, state in frontier}
    while frontier:
        following = []
        for text, state in frontier:
            budget.spend(cost)
            for character, hits in choices:
                for after in _single(tuple(map(Track.step, tracks, state, hits))):
                    if after in seen:
                        continue
                    seen.add(after)
                    following.append((text + character, after))
                    ended = [track.ended(places) for track, places in zip(tracks, after, strict=True)]
                    if ended[0] and ended[1]:
                        yield text + character, frozenset(compress(patterns[2:], ended[2:]))
        frontier = following


def _single(state: _State) -> Iterator[_State]:
    """Give the states with one position each for the first two patterns."""
    first, second, *rest = state
    for one in _bits(first):
        for another in _bits(second):
            yield one, another, *rest


def _bits(places: int) -> Iterator[int]:
    while places:
        lowest = places & -places
        yield lowest
        places ^= lowest


def _track(pattern: Name) -> Track:
    stars = sum(1 << number for number, token in enumerate(pattern.tokens) if isinstance(token, AnyText))
    return Track(stars=stars, end=1 << len(pattern.tokens))


def _choices(patterns: Sequence[Name], *, budget: Budget, folding: bool) -> list[tuple[str, tuple[int, ...]]]:
    """Give the characters to try, each with the positions of every pattern that it fits."""
    tokens = [token for pattern in patterns for token in pattern.tokens if isinstance(token, OneOf)]
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    budget.spend(len(numbers) * sum(len(token.ranges) for token in numbers) // 2)
    spots = [_spots(pattern, numbers) for pattern in patterns]
    return [
        (character, tuple(sum(bits for number, bits in spot if members >> number & 1) for spot in spots))
        for character, members in letters(tuple(numbers), folding=folding)
    ]


def _spots(pattern: Name, numbers: dict[OneOf, int]) -> list[tuple[int, int]]:
    """Give for each class of a pattern, by its number, the positions where it stands."""
    spots: dict[int, int] = {}
    for place, token in enumerate(pattern.tokens):
        if isinstance(token, OneOf):
            spots[numbers[token]] = spots.get(numbers[token], 0) | 1 << place
    return list(spots.items())

"""Names of one path component that two patterns share, and which other patterns they match too. Pure.

All patterns read the same characters in parallel, the shortest texts first. A search that takes more steps
than its budget ends with `TooComplexError`: what is not proven does not pass.
"""

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import TypeAlias

from isolation.claims.alphabet import representatives
from isolation.claims.globs import AnyText, Name, OneOf
from isolation.claims.nfa import Automaton

_NO_NAMES = tuple(
    Name(tokens=tuple(OneOf(ranges=((character, character),)) for character in text)) for text in (".", "..")
)
"""Names that no file can have."""

_LONG = 256
"""How many positions cost as much as one: they are bits of one integer."""

Fitting: TypeAlias = frozenset[Name]
_State: TypeAlias = tuple[int, ...]


class TooComplexError(Exception):
    """The budget was used up before an answer was found."""


class Budget:
    """How many steps a search may still take."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Count steps; more than are left is a `TooComplexError`."""
        self.left -= steps
        if self.left < 0:
            raise TooComplexError


def common_names(
    first: Name, second: Name, others: Sequence[Name], *, budget: Budget, folding: bool
) -> list[tuple[str, Fitting]]:
    """Return names that match both, shortest first, each with the other patterns that it matches too.

    A name is left out if another one, no longer than it, matches fewer of the others.
    """
    for one, another in ((first, second), (second, first)):
        if one.literal is not None:
            budget.spend(1 + len(others))
            return _only_name(one.literal, another, others)
    if _disjoint(first, second):
        return []
    found: list[tuple[str, Fitting]] = []
    # Most patterns cannot match such a name, so they need not exclude it.
    barred = [name for name in _NO_NAMES if first.matches(name.head) and second.matches(name.head)]
    for text, fitting in _walk((first, second, *barred, *others), budget=budget, folding=folding):
        if fitting.isdisjoint(_NO_NAMES) and not any(less <= fitting for _, less in found):
            found.append((text, fitting))
            if not fitting:
                break  # a name that matches no other pattern is the best answer
    return [
        (text, fitting)
        for text, fitting in found
        if not any(less < fitting and len(other) == len(text) for other, less in found)
    ]


def _disjoint(first: Name, second: Name) -> bool:
    """Return whether the beginnings or the ends alone show that no text matches both."""
    heads = first.head.startswith(second.head) or second.head.startswith(first.head)
    tails = first.tail.endswith(second.tail) or second.tail.endswith(first.tail)
    return not (heads and tails)


def _only_name(text: str, wanted: Name, others: Sequence[Name]) -> list[tuple[str, Fitting]]:
    """Return the answer if one pattern matches a single name."""
    if not wanted.matches(text) or any(name.matches(text) for name in _NO_NAMES):
        return []
    return [(text, frozenset(name for name in others if name.matches(text)))]


def _walk(patterns: Sequence[Name], *, budget: Budget, folding: bool) -> Iterator[tuple[str, Fitting]]:
    """Yield texts that match the first two patterns, with those of the rest that match; nothing twice.

    The first two are followed one position at a time: one path to the end is enough. For the rest all
    positions are kept, since a text fails to match only if no path leads to the end.
    """
    automata = [_automaton(pattern) for pattern in patterns]
    choices = _choices(patterns, budget=budget, folding=folding)
    length = sum(len(pattern.tokens) for pattern in patterns)
    cost = len(choices) * len(automata) * (1 + length // _LONG)
    frontier = [("", state) for state in _single(tuple(automaton.start for automaton in automata))]
    seen = {state for _, state in frontier}
    while frontier:
        following = []
        for text, state in frontier:
            budget.spend(cost)
            for character, hits in choices:
                for after in _single(tuple(map(Automaton.step, automata, state, hits))):
                    if after in seen:
                        continue  # a text that is no longer has led here already
                    seen.add(after)
                    following.append((text + character, after))
                    ended = [
                        automaton.ended(positions)
                        for automaton, positions in zip(automata, after, strict=True)
                    ]
                    if ended[0] and ended[1]:
                        yield text + character, frozenset(compress(patterns[2:], ended[2:]))
        frontier = following


def _single(state: _State) -> Iterator[_State]:
    """Yield the states with one position each for the first two patterns."""
    first, second, *rest = state
    for one in _bits(first):
        for another in _bits(second):
            yield one, another, *rest


def _bits(positions: int) -> Iterator[int]:
    while positions:
        lowest = positions & -positions
        yield lowest
        positions ^= lowest


def _automaton(pattern: Name) -> Automaton:
    stars = sum(1 << number for number, token in enumerate(pattern.tokens) if isinstance(token, AnyText))
    return Automaton(stars=stars, end=1 << len(pattern.tokens))


def _choices(patterns: Sequence[Name], *, budget: Budget, folding: bool) -> list[tuple[str, tuple[int, ...]]]:
    """Return the characters to try, each with the positions of every pattern that it matches."""
    tokens = [token for pattern in patterns for token in pattern.tokens if isinstance(token, OneOf)]
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    budget.spend(len(numbers) * sum(len(token.ranges) for token in numbers) // 2)
    positions_by_class = [_positions_by_class(pattern, numbers) for pattern in patterns]
    return [
        (
            character,
            tuple(
                sum(bits for number, bits in classes if members >> number & 1)
                for classes in positions_by_class
            ),
        )
        for character, members in representatives(tuple(numbers), folding=folding)
    ]


def _positions_by_class(pattern: Name, numbers: dict[OneOf, int]) -> list[tuple[int, int]]:
    """Return for each class of a pattern, by its number, the positions where it occurs."""
    positions_by_class: dict[int, int] = {}
    for place, token in enumerate(pattern.tokens):
        if isinstance(token, OneOf):
            positions_by_class[numbers[token]] = positions_by_class.get(numbers[token], 0) | 1 << place
    return list(positions_by_class.items())

"""Do two claims share a path, and does a claim lie within another? Proven, not sampled. Pure.

A claim owns what one of its globs matches and no later `!` excludes. So two claims share a path if a glob of
each matches it and none of the exclusions after these two does. That is one search from the root down, folder
by folder, over all paths simultaneously, and it finds a shortest such path. Most globs differ in the folders
that they begin with, and are proven disjoint without a search.

The answer is exact, or there is none: a search beyond its budget is an `UnprovenError`.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from isolation.claims import globs as claims
from isolation.claims.globs import AnyDepth, AnyText, Claim, Component, Glob, Name
from isolation.claims.name_search import Budget, Fitting, TooComplexError, common_names
from isolation.claims.nfa import Automaton
from isolation.errors import UnprovenError

STEPS = 4_000_000
"""The budget of one proof, for any number of claims; a step takes about a microsecond or less."""
STEPS_A_PAIR = 1_500_000
"""The part of it for two globs, so that only those that are too complex are named."""

_SHOWN = 60
_COST = 20
_ANY_NAME = Name(tokens=(AnyText(),))
_SIMPLER = "use fewer '*' and '?' in one name, or let the globs begin with different folders."


class Overlap(Struct, frozen=True, kw_only=True):
    """A path that two claims own, and the globs that match it."""

    path: str
    first: Glob
    second: Glob


class _Pattern(Struct, frozen=True, kw_only=True):
    """A prepared glob: without two `**` in a row, with the folders that all its paths begin with."""

    glob: Glob
    parts: tuple[Component, ...]
    prefix: tuple[str, ...]
    automaton: Automaton

    def starts_apart(self, other: "_Pattern") -> bool:
        """Return whether the beginnings alone show that no path matches both."""
        return any(mine != its for mine, its in zip(self.prefix, other.prefix, strict=False))

    def after(self, positions: int, fitting: Fitting) -> int:
        """Return the positions after a folder whose name matches these parts."""
        hits = sum(1 << number for number, part in enumerate(self.parts) if part in fitting)
        return self.automaton.step(positions, hits)


class _Grant(Struct, frozen=True, kw_only=True):
    """A glob of a claim that grants paths, and the later globs that exclude some of them."""

    pattern: _Pattern
    excluded: tuple[_Pattern, ...]


_State: TypeAlias = tuple[bool, int, int, tuple[int, ...]]
"""Whether the path has a name yet; how much of either glob has matched; positions of the exclusions."""


_PathSoFar: TypeAlias = tuple["_PathSoFar | None", str]
"""The last name of a path, after what comes before it."""


class Proof:
    """Answers questions about claims with the same folding, all within one budget."""

    def __init__(self, *, steps: int = STEPS) -> None:
        self._budget = Budget(steps)
        self._known: dict[tuple[Name, ...], list[tuple[str, Fitting]]] = {}

    def overlaps(self, owners: Sequence[Claim]) -> Iterator[tuple[int, int, Overlap]]:
        """Yield every two claims that share a path, by their positions."""
        ready = [(_grants(owner), owner.folding) for owner in owners]
        for number, other in _comparable([grants for grants, _ in ready]):
            (first, folding), (second, _) = ready[number], ready[other]
            try:
                found = self._overlap(first, second, folding=folding)
            except UnprovenError as error:
                error.pair = (number, other)
                raise
            if found:
                yield number, other, found

    def overlap(self, first: Claim, second: Claim) -> Overlap | None:
        """Return a shortest path that both claims own; None if they share none."""
        return next((found for _, _, found in self.overlaps((first, second))), None)

    def outside(self, claim: Claim, limits: Claim) -> tuple[str, Glob] | None:
        """Return a shortest path of a claim outside `limits`, and its glob; None if the claim lies within.

        What `limits` does not own is a claim too: everything, except for what it grants, plus what it
        excludes.
        """
        (everything,) = claims.compile(["**"]).globs
        flipped = (replace(glob, negated=not glob.negated) for glob in limits.globs)
        beyond = Claim(globs=(everything, *flipped), folding=limits.folding)
        found = self.overlap(claim, beyond)
        return (found.path, found.first) if found else None

    def _overlap(self, first: Sequence[_Grant], second: Sequence[_Grant], *, folding: bool) -> Overlap | None:
        found: list[Overlap] = []
        for one in first:
            for another in second:
                if one.pattern.starts_apart(another.pattern):
                    continue
                path = self._within_budget(one, another, folding=folding)
                if path is not None:
                    found.append(Overlap(path=path, first=one.pattern.glob, second=another.pattern.glob))
        return min(found, key=lambda overlap: (len(overlap.path), overlap.path), default=None)

    def _within_budget(self, one: _Grant, another: _Grant, *, folding: bool) -> str | None:
        # A pair gets only its part, so that one hard pair does not use up the budget of all others.
        granted = min(STEPS_A_PAIR, self._budget.left)
        search = _Search(one=one, another=another, budget=Budget(granted), known=self._known, folding=folding)
        try:
            path = search.shortest()
        except TooComplexError:
            first, *others = dict.fromkeys(pattern.glob.text for pattern in search.patterns)
            texts = " and ".join([_quoted(first), *filter(None, [", ".join(map(_quoted, others))])])
            raise UnprovenError(f"too complex to compare: {texts}", hint=_SIMPLER) from None
        self._budget.spend(granted - search.budget.left)
        return path


class _Search:
    """Searches a path that two globs share and nothing excludes, shorter paths first."""

    def __init__(
        self,
        *,
        one: _Grant,
        another: _Grant,
        budget: Budget,
        known: dict[tuple[Name, ...], list[tuple[str, Fitting]]],
        folding: bool,
    ) -> None:
        self.budget = budget
        self._one, self._another = one.pattern.parts, another.pattern.parts
        # An exclusion that cannot match what both globs match would only cost steps.
        self._excluded = tuple(
            pattern
            for pattern in (*one.excluded, *another.excluded)
            if not pattern.starts_apart(one.pattern) and not pattern.starts_apart(another.pattern)
        )
        self.patterns = (one.pattern, another.pattern, *self._excluded)
        self._weight = 2 * sum(len(pattern.parts) for pattern in self._excluded)
        self._known = known
        self._folding = folding

    def shortest(self) -> str | None:
        """Return the shortest path; None if every state has been visited."""
        start: _State = (False, 0, 0, tuple(pattern.automaton.start for pattern in self._excluded))
        number = count()  # breaks ties: of equal lengths, the one found first
        queue: list[tuple[int, int, _State, _PathSoFar | None]] = [(0, next(number), start, None)]
        seen: set[_State] = set()
        self.budget.spend(_COST + self._weight)
        # Shortest first, as in Dijkstra's algorithm: the first shared path is a shortest one.
        while queue:
            length, _, state, path_so_far = heapq.heappop(queue)
            if state in seen:
                continue
            seen.add(state)
            self.budget.spend(_COST)
            if self._is_shared_path(state):
                return "/".join(_names(path_so_far))
            for free in self._skip_stars(state):
                heapq.heappush(queue, (length, next(number), free, path_so_far))
            for name, following in self._descend(state):
                self.budget.spend(_COST + self._weight)
                heapq.heappush(queue, (length + 1 + len(name), next(number), following, (path_so_far, name)))
        return None

    def _is_shared_path(self, state: _State) -> bool:
        named, first, second, positions = state
        whole = named and first == len(self._one) and second == len(self._another)
        return whole and not any(
            pattern.automaton.ended(position)
            for pattern, position in zip(self._excluded, positions, strict=True)
        )

    def _skip_stars(self, state: _State) -> Iterator[_State]:
        """Yield the states after a `**` that matches nothing."""
        named, first, second, positions = state
        if first < len(self._one) and isinstance(self._one[first], AnyDepth):
            yield named, first + 1, second, positions
        if second < len(self._another) and isinstance(self._another[second], AnyDepth):
            yield named, first, second + 1, positions

    def _descend(self, state: _State) -> Iterator[tuple[str, _State]]:
        """Yield the states one folder down, for every name that makes a difference."""
        _, first, second, positions = state
        if first == len(self._one) or second == len(self._another):
            return
        one, after_one = _step(self._one, first)
        another, after_another = _step(self._another, second)
        for name, fitting in self._names(one, another, self._others(positions)):
            following = tuple(
                pattern.after(position, fitting)
                for pattern, position in zip(self._excluded, positions, strict=True)
            )
            yield name, (True, after_one, after_another, following)

    def _others(self, positions: Sequence[int]) -> tuple[Name, ...]:
        """Return the names that the exclusions expect here."""
        waited = (
            part
            for pattern, position in zip(self._excluded, positions, strict=True)
            for number, part in enumerate(pattern.parts)
            if position >> number & 1 and isinstance(part, Name)
        )
        return tuple(dict.fromkeys(waited))

    def _names(self, one: Name, another: Name, others: tuple[Name, ...]) -> list[tuple[str, Fitting]]:
        key = (one, another, *others)
        if key not in self._known:
            self._known[key] = common_names(one, another, others, budget=self.budget, folding=self._folding)
        return self._known[key]


def _names(path_so_far: _PathSoFar | None) -> list[str]:
    """Return the names that led here, from the root down."""
    names: list[str] = []
    while path_so_far is not None:
        path_so_far, name = path_so_far
        names.append(name)
    return names[::-1]


def _step(parts: Sequence[Component], position: int) -> tuple[Name, int]:
    """Return which names match next, and the position after them."""
    part = parts[position]
    # `**` matches any name and stays where it is.
    return (_ANY_NAME, position) if isinstance(part, AnyDepth) else (part, position + 1)


def _comparable(owners: Sequence[Sequence[_Grant]]) -> list[tuple[int, int]]:
    """Return the pairs of claims that do not already differ in the folders that they begin with, in order.

    Of two globs that do not, one begins with all folders of the other. So each is looked up under its own
    beginnings, and many claims in different folders take no more time than each of them alone.
    """
    beginning: dict[tuple[str, ...], set[int]] = {}
    for number, grants in enumerate(owners):
        for grant in grants:
            beginning.setdefault(grant.pattern.prefix, set()).add(number)
    pairs = {
        (min(number, other), max(number, other))
        for number, grants in enumerate(owners)
        for prefix in {grant.pattern.prefix for grant in grants}
        for length in range(len(prefix) + 1)
        for other in beginning.get(prefix[:length], ())
        if other != number
    }
    return sorted(pairs)


def _grants(claim: Claim) -> list[_Grant]:
    patterns = [_pattern(glob) for glob in claim.globs]
    return [
        _Grant(pattern=pattern, excluded=tuple(later for later in patterns[number:] if later.glob.negated))
        for number, pattern in enumerate(patterns)
        if not pattern.glob.negated
    ]


def _pattern(glob: Glob) -> _Pattern:
    parts = tuple(_without_repeats(glob.components))
    stars = sum(1 << number for number, part in enumerate(parts) if isinstance(part, AnyDepth))
    return _Pattern(
        glob=glob,
        parts=parts,
        prefix=tuple(_plain_beginning(parts)),
        automaton=Automaton(stars=stars, end=1 << len(parts)),
    )


def _plain_beginning(parts: Iterable[Component]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, AnyDepth) or part.literal is None:
            return
        yield part.literal


def _quoted(text: str) -> str:
    return f"'{text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}'"


def _without_repeats(components: Iterable[Component]) -> Iterator[Component]:
    last: Component | None = None
    for component in components:
        if not (isinstance(component, AnyDepth) and isinstance(last, AnyDepth)):
            yield component
        last = component

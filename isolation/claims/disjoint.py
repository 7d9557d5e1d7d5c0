"""Do two claims share a path, and does a claim lie within another? Proven, not sampled. Pure.

A claim owns what one of its globs matches and no later `!` takes back. So two claims share a path when
a glob of each matches it and none of the takings-back behind these two does. That is one search from
the root downwards, folder by folder, over all paths at once, and what it finds is a shortest such path.
Most globs differ in the folders that they begin with, and are told apart without a search.

The answer is exact, or there is none: a search beyond its budget is an `UnprovenError`.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, count
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from isolation.claims import globs as claims
from isolation.claims.globs import AnyDepth, AnyText, Claim, Component, Glob, Name
from isolation.claims.name_search import Budget, Fitting, TooComplexError, common_names
from isolation.claims.nfa import Track
from isolation.errors import UnprovenError

STEPS = 4_000_000
"""What one proof may take, however many claims there are; a step is about a microsecond or less."""
STEPS_A_PAIR = 1_500_000
"""What two globs may take of it, so that those which are too complex are named, and no others."""

_SHOWN = 60
_COST = 20
_ANY_NAME = Name(tokens=(AnyText(),))
_SIMPLER = "use fewer '*' and '?' in one name, or let the globs begin with different folders."


class Overlap(Struct, frozen=True, kw_only=True):
    """A path that two claims own, and the globs that give it to them."""

    path: str
    first: Glob
    second: Glob


class _Route(Struct, frozen=True, kw_only=True):
    """A glob made ready: no two `**` side by side, and the folders that all its paths begin with."""

    glob: Glob
    parts: tuple[Component, ...]
    prefix: tuple[str, ...]
    track: Track

    def apart(self, other: "_Route") -> bool:
        """Tell whether the beginnings alone show that no path is in both."""
        return any(mine != its for mine, its in zip(self.prefix, other.prefix, strict=False))

    def after(self, places: int, fitting: Fitting) -> int:
        """Go on by a folder whose name fits these."""
        hits = sum(1 << number for number, part in enumerate(self.parts) if part in fitting)
        return self.track.step(places, hits)


class _Holding(Struct, frozen=True, kw_only=True):
    """A glob of a claim that gives paths, and the globs behind it that take some back."""

    route: _Route
    taken: tuple[_Route, ...]


_State: TypeAlias = tuple[bool, int, int, tuple[int, ...]]
"""Whether there is a name yet; how much of either glob is behind; where the takings-back can be."""


_Trail: TypeAlias = tuple["_Trail | None", str]
"""The last name of a path, behind the way to it."""


class Proof:
    """Answers questions about claims that fold alike, all within one budget."""

    def __init__(self, *, steps: int = STEPS) -> None:
        self._budget = Budget(steps)
        self._known: dict[tuple[Name, ...], list[tuple[str, Fitting]]] = {}

    def overlaps(self, owners: Sequence[Claim]) -> Iterator[tuple[int, int, Overlap]]:
        """Give every two claims that share a path, by their numbers."""
        ready = [(_holdings(owner), owner.folding) for owner in owners]
        for (number, (first, folding)), (other, (second, _)) in combinations(enumerate(ready), 2):
            try:
                found = self._overlap(first, second, folding=folding)
            except UnprovenError as error:
                error.pair = (number, other)
                raise
            if found:
                yield number, other, found

    def overlap(self, first: Claim, second: Claim) -> Overlap | None:
        """Give a shortest path that both claims own, or None when there is none."""
        return next((found for _, _, found in self.overlaps((first, second))), None)

    def outside(self, claim: Claim, fence: Claim) -> tuple[str, Glob] | None:
        """Give a shortest path of a claim that the fence does not own, and its glob; None when all is within.

        What the fence does not own is a claim too: everything, less what the fence gives, and what it
        takes back again.
        """
        (everything,) = claims.compile(["**"]).globs
        flipped = (replace(glob, negated=not glob.negated) for glob in fence.globs)
        beyond = Claim(globs=(everything, *flipped), folding=fence.folding)
        found = self.overlap(claim, beyond)
        return (found.path, found.first) if found else None

    def _overlap(
        self, first: Sequence[_Holding], second: Sequence[_Holding], *, folding: bool
    ) -> Overlap | None:
        found: list[Overlap] = []
        for one in first:
            for another in second:
                if one.route.apart(another.route):
                    continue
                path = self._within_budget(one, another, folding=folding)
                if path is not None:
                    found.append(Overlap(path=path, first=one.route.glob, second=another.route.glob))
        return min(found, key=lambda overlap: (len(overlap.path), overlap.path), default=None)

    def _within_budget(self, one: _Holding, another: _Holding, *, folding: bool) -> str | None:
        granted = min(STEPS_A_PAIR, self._budget.left)
        search = _Search(one=one, another=another, budget=Budget(granted), known=self._known, folding=folding)
        try:
            path = search.shortest()
        except TooComplexError:
            first, *others = dict.fromkeys(route.glob.text for route in search.routes)
            texts = " and ".join([_quoted(first), *filter(None, [", ".join(map(_quoted, others))])])
            raise UnprovenError(f"too complex to compare: {texts}", hint=_SIMPLER) from None
        self._budget.spend(granted - search.budget.left)
        return path


class _Search:
    """Looks for a path that two globs share and nothing takes back, shorter paths first."""

    def __init__(
        self,
        *,
        one: _Holding,
        another: _Holding,
        budget: Budget,
        known: dict[tuple[Name, ...], list[tuple[str, Fitting]]],
        folding: bool,
    ) -> None:
        self.budget = budget
        self._one, self._another = one.route.parts, another.route.parts
        self._taken = tuple(
            route
            for route in (*one.taken, *another.taken)
            if not route.apart(one.route) and not route.apart(another.route)
        )
        self.routes = (one.route, another.route, *self._taken)
        self._weight = 2 * sum(len(route.parts) for route in self._taken)
        self._known = known
        self._folding = folding

    def shortest(self) -> str | None:
        """Walk down; None when every way has been gone."""
        start: _State = (False, 0, 0, tuple(route.track.start for route in self._taken))
        number = count()  # of two that are as long, the one that was found first
        queue: list[tuple[int, int, _State, _Trail | None]] = [(0, next(number), start, None)]
        seen: set[_State] = set()
        self.budget.spend(_COST + self._weight)
        while queue:
            length, _, state, trail = heapq.heappop(queue)
            if state in seen:
                continue
            seen.add(state)
            self.budget.spend(_COST)
            if self._arrived(state):
                return "/".join(_names(trail))
            for free in self._free(state):
                heapq.heappush(queue, (length, next(number), free, trail))
            for name, following in self._down(state):
                self.budget.spend(_COST + self._weight)
                heapq.heappush(queue, (length + 1 + len(name), next(number), following, (trail, name)))
        return None

    def _arrived(self, state: _State) -> bool:
        named, first, second, places = state
        whole = named and first == len(self._one) and second == len(self._another)
        return whole and not any(
            route.track.ended(place) for route, place in zip(self._taken, places, strict=True)
        )

    def _free(self, state: _State) -> Iterator[_State]:
        """Pass a `**` that takes nothing."""
        named, first, second, places = state
        if first < len(self._one) and isinstance(self._one[first], AnyDepth):
            yield named, first + 1, second, places
        if second < len(self._another) and isinstance(self._another[second], AnyDepth):
            yield named, first, second + 1, places

    def _down(self, state: _State) -> Iterator[tuple[str, _State]]:
        """Go one folder down, by every name that makes a difference."""
        _, first, second, places = state
        if first == len(self._one) or second == len(self._another):
            return
        one, after_one = _step(self._one, first)
        another, after_another = _step(self._another, second)
        for name, fitting in self._names(one, another, self._others(places)):
            following = tuple(
                route.after(place, fitting) for route, place in zip(self._taken, places, strict=True)
            )
            yield name, (True, after_one, after_another, following)

    def _others(self, places: Sequence[int]) -> tuple[Name, ...]:
        """Give the names that the takings-back wait for here."""
        waited = (
            part
            for route, place in zip(self._taken, places, strict=True)
            for number, part in enumerate(route.parts)
            if place >> number & 1 and isinstance(part, Name)
        )
        return tuple(dict.fromkeys(waited))

    def _names(self, one: Name, another: Name, others: tuple[Name, ...]) -> list[tuple[str, Fitting]]:
        key = (one, another, *others)
        if key not in self._known:
            self._known[key] = common_names(one, another, others, budget=self.budget, folding=self._folding)
        return self._known[key]


def _names(trail: _Trail | None) -> list[str]:
    """Give the names that led here, from the root downwards."""
    names: list[str] = []
    while trail is not None:
        trail, name = trail
        names.append(name)
    return names[::-1]


def _step(parts: Sequence[Component], place: int) -> tuple[Name, int]:
    """Say which names lead on from here, and where to."""
    part = parts[place]
    return (_ANY_NAME, place) if isinstance(part, AnyDepth) else (part, place + 1)


def _holdings(claim: Claim) -> list[_Holding]:
    routes = [_route(glob) for glob in claim.globs]
    return [
        _Holding(route=route, taken=tuple(later for later in routes[number:] if later.glob.negated))
        for number, route in enumerate(routes)
        if not route.glob.negated
    ]


def _route(glob: Glob) -> _Route:
    parts = tuple(_without_repeats(glob.components))
    stars = sum(1 << number for number, part in enumerate(parts) if isinstance(part, AnyDepth))
    return _Route(
        glob=glob,
        parts=parts,
        prefix=tuple(_plain_beginning(parts)),
        track=Track(stars=stars, end=1 << len(parts)),
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

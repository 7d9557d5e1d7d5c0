"""The order in which branches are tried, so that a landing loses as few stories as possible. Pure.

Of two stories that conflict, the one that is tried first lands, and the other is lost, with all that depend
on it. The order is found greedily: of the stories that could be next, the one that costs the fewest others.
Whatever is lost anyway comes last. Dependencies always come first, and of equals the oldest. A story that has
lost to others in earlier landings comes before all that have not, whatever that costs: otherwise it could
wait forever, because newer ones keep coming.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from runner.core.landing.closure import closure
from runner.core.model import StoryId


class _Graph(Struct, frozen=True, kw_only=True):
    """What the rules look at: which stories need, are needed by and conflict with which others."""

    needs: Mapping[StoryId, frozenset[StoryId]]
    dependents: Mapping[StoryId, frozenset[StoryId]]
    conflicts: Mapping[StoryId, frozenset[StoryId]]
    oldest_first: tuple[StoryId, ...]
    losses: Mapping[StoryId, int]


def landing_order(
    needs: Mapping[StoryId, Collection[StoryId]],
    conflicts: Mapping[StoryId, Collection[StoryId]],
    *,
    ages: Mapping[StoryId, float] | None = None,
    hopeless: Collection[StoryId] = (),
    losses: Mapping[StoryId, int] | None = None,
) -> tuple[StoryId, ...]:
    """Return every story behind what it needs; `ages` are the instants since which they wait.

    `hopeless` are stories that do not even merge onto the target. `losses` are how many earlier landings left
    a story out in favor of others. Stories that nothing is known about are tried in the order of their age,
    and of their ids.
    """
    graph = _graph(needs, conflicts, ages or {}, losses or {})
    greedy = _greedy(graph, hopeless)
    by_age = _first_come(graph)
    # The greedy order is not always the best one. It is never worse than the order without a forecast.
    better = len(landing(by_age, needs, conflicts, hopeless)) > len(
        landing(greedy, needs, conflicts, hopeless)
    )
    return by_age if better else greedy


def landing(
    order: Collection[StoryId],
    needs: Mapping[StoryId, Collection[StoryId]],
    conflicts: Mapping[StoryId, Collection[StoryId]],
    hopeless: Collection[StoryId] = (),
) -> tuple[StoryId, ...]:
    """Return the stories that would land in this order, if nothing else but conflicts keeps them back."""
    landed: dict[StoryId, None] = {}
    among = set(order)
    for story in order:
        complete = all(need in landed for need in needs.get(story, ()) if need in among)
        clashes = any(other in landed for other in conflicts.get(story, ()))
        if complete and story not in hopeless and not clashes:
            landed[story] = None
    return tuple(landed)


def _graph(
    needs: Mapping[StoryId, Collection[StoryId]],
    conflicts: Mapping[StoryId, Collection[StoryId]],
    ages: Mapping[StoryId, float],
    losses: Mapping[StoryId, int],
) -> _Graph:
    inside = {story: frozenset(those) & needs.keys() for story, those in needs.items()}
    dependents: dict[StoryId, set[StoryId]] = {story: set() for story in inside}
    for story, those in inside.items():
        for need in those:
            dependents[need].add(story)
    # What a story needs must not lose in its place.
    urgent: dict[StoryId, int] = {}
    for story, times in losses.items():
        urgent |= {each: max(times, urgent.get(each, 0)) for each in closure((story,), inside)}
    return _Graph(
        needs=inside,
        dependents={story: frozenset(others) for story, others in dependents.items()},
        conflicts={story: frozenset(conflicts.get(story, ())) & inside.keys() for story in inside},
        oldest_first=tuple(
            sorted(inside, key=lambda story: (-urgent.get(story, 0), ages.get(story, 0.0), story))
        ),
        losses=urgent,
    )


def _greedy(graph: _Graph, hopeless: Collection[StoryId]) -> tuple[StoryId, ...]:
    """Choose one story after the other, each the cheapest; then come the lost ones."""
    order: dict[StoryId, None] = {}
    lost = closure(set(hopeless) & graph.needs.keys(), graph.dependents)
    costs = {story: _cost(graph, story) for story in graph.oldest_first}
    left = [story for story in graph.oldest_first if story not in lost]
    while (chosen := _cheapest(graph, costs, left, order, lost)) is not None:
        order[chosen] = None
        left.remove(chosen)
        if losing := costs[chosen] - order.keys() - lost:
            lost |= losing
            left = [story for story in left if story not in lost]
    return _first_come(graph, order)


def _cheapest(
    graph: _Graph,
    costs: Mapping[StoryId, frozenset[StoryId]],
    left: Collection[StoryId],
    order: Collection[StoryId],
    lost: Collection[StoryId],
) -> StoryId | None:
    """Return the story that costs the fewest others, of equals the oldest; None if none could be next."""
    chosen, fewest, losses = None, 0, 0
    for story in left:
        if not all(need in order for need in graph.needs[story]):
            continue
        # Those that have lost most come first in `left`, and no other comes before them.
        if chosen is not None and graph.losses.get(story, 0) < losses:
            break
        cost = sum(other not in lost for other in costs[story])
        if chosen is None or cost < fewest:
            chosen, fewest, losses = story, cost, graph.losses.get(story, 0)
        if not fewest:  # the usual case: no other is cheaper
            break
    return chosen


def _first_come(graph: _Graph, begun: Collection[StoryId] = ()) -> tuple[StoryId, ...]:
    """Return an order that has begun, and behind it all others, the oldest that could be next each time."""
    order = dict.fromkeys(begun)
    left = [story for story in graph.oldest_first if story not in order]
    while left:
        ready = (story for story in left if all(need in order for need in graph.needs[story]))
        following = next(ready, None)
        if following is None:
            break
        order[following] = None
        left.remove(following)
    return tuple(order)


def _cost(graph: _Graph, story: StoryId) -> frozenset[StoryId]:
    """Return what is lost once a story has landed."""
    return frozenset(closure(graph.conflicts[story], graph.dependents))

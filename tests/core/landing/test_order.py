"""The order of a landing, and what landings do to the state of stories."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.events import base
from runner.core.events import landing as ld
from runner.core.events.events import Body, Event, RunStarted, decode, encode
from runner.core.events.fold import apply, fold
from runner.core.landing.order import landing, landing_order
from runner.core.model import RunId, RunSnapshot, StoryId

RUN = RunId("run")
A, B, C, D = (StoryId(name) for name in "abcd")


def conflicting(*pairs: tuple[StoryId, StoryId]) -> dict[StoryId, set[StoryId]]:
    """Return who conflicts with whom."""
    found: dict[StoryId, set[StoryId]] = {}
    for one, other in pairs:
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return found


def test_dependencies_come_first_then_those_that_cost_the_fewest_others_then_the_oldest() -> None:
    """A story with conflicts waits behind others, but never behind its own dependents."""
    needs: dict[StoryId, set[StoryId]] = {A: {D}, B: set(), C: set(), D: set()}
    assert landing_order(needs, {}) == (B, C, D, A)
    assert landing_order(needs, {}, ages={B: 3.0, C: 2.0, D: 1.0}) == (D, A, C, B)
    assert landing_order(needs, conflicting((B, C), (B, D))) == (C, D, A, B)
    assert landing_order(needs, conflicting((C, D))) == (B, D, A, C), "with D, A would be lost"
    assert landing_order(needs, {}, hopeless=(D,)) == (B, C, D, A)
    pair = conflicting((B, C))
    assert landing_order({B: set(), C: set()}, pair, ages={B: 2.0, C: 1.0}) == (C, B), "the oldest wins"


def test_none_is_starved_by_stories_that_keep_coming() -> None:
    """Landing after landing, newer stories arrive that conflict with an old one: it loses once at most."""
    old, waits = StoryId("old"), 0
    losses: dict[StoryId, int] = {}
    for number in range(1, 9):
        newer = [StoryId(f"new-{number}-{each}") for each in range(3)]
        ages = {old: 0.0} | dict.fromkeys(newer, float(number))
        pairs = conflicting(*((old, each) for each in newer))
        order = landing_order(dict.fromkeys([old, *newer], ()), pairs, ages=ages, losses=losses)
        if old in landing(order, {}, pairs):
            break
        losses, waits = {old: losses.get(old, 0) + 1}, waits + 1
    assert (waits, order[0]) == (1, old)
    needs = {A: {B}, B: (), C: (), D: ()}
    clashes = conflicting((B, C), (B, D))
    assert landing_order(needs, clashes, losses={A: 1})[:2] == (B, A), "what it needs does not lose either"


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_who_has_lost_most_often_lands_next(rng: Random) -> None:
    """With conflicts at random and arrivals at each landing, what is first in the queue always lands."""
    waiting: dict[StoryId, int] = {}
    for number in range(12):
        waiting |= {StoryId(f"{number:02}-{each}"): 0 for each in range(rng.randint(0, 4))}
        names = sorted(waiting)
        pairs = conflicting(*((a, b) for a in names for b in names if a < b and rng.random() < 0.6))
        ages = {name: float(name[:2]) for name in names}
        needs: dict[StoryId, set[StoryId]] = {name: set() for name in names}
        order = landing_order(needs, pairs, ages=ages, losses={name: n for name, n in waiting.items() if n})
        landed = landing(order, needs, pairs)
        first = min(names, key=lambda name: (-waiting[name], name), default=None)
        assert first is None or not waiting[first] or waiting[landed[0]] == waiting[first]
        waiting = {name: times + 1 for name, times in waiting.items() if name not in landed}


graphs = st.integers(1, 7).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.sets(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))),
        st.sets(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))),
        st.lists(st.integers(0, 3), min_size=size, max_size=size),
    )
)


@given(graphs)
def test_an_order_is_complete_and_never_loses_more_than_the_order_of_age(
    graph: tuple[int, set[tuple[int, int]], set[tuple[int, int]], list[int]],
) -> None:
    """Every story once, behind what it needs; compared with first come, first served."""
    size, edges, clashes, instants = graph
    stories = [StoryId(str(number)) for number in range(size)]
    needs = {stories[n]: {stories[low] for low, high in edges if low < high == n} for n in range(size)}
    conflicts = conflicting(*((stories[one], stories[two]) for one, two in clashes if one != two))
    ages = dict(zip(stories, map(float, instants), strict=True))
    order = landing_order(needs, conflicts, ages=ages)
    assert sorted(order) == stories
    assert all(set(order[: order.index(story)]) >= needs[story] for story in stories)
    unaware = landing_order(needs, {}, ages=ages)
    assert len(landing(order, needs, conflicts)) >= len(landing(unaware, needs, conflicts))


def started() -> list[Event]:
    stories = tuple({"id": name, "title": name, "depends_on": []} for name in "ab")
    body = RunStarted(
        base="0", isolation="worktree", enforcement="none", max_stories=1, options={}, stories=stories
    )
    return [Event(run_id=RUN, at=1.0, body=body)]


def after(*bodies: Body) -> RunSnapshot:
    """Fold events that went through their form in the journal, at once and one by one."""
    events = started() + [Event(run_id=RUN, at=2.0, body=decode(*encode(body))) for body in bodies]
    one_by_one = RunSnapshot(run_id=RUN, started_at=0.0)
    for event in events:
        one_by_one = apply(one_by_one, event)
    assert fold(RUN, events) == one_by_one
    return one_by_one


def test_a_landing_and_its_undoing_show_in_the_stories() -> None:
    """Landed stories know where, others why not; undone, they are as before."""
    planned = ld.LandingPlanned(landing_id="x", onto="main", tip="1", stories=("a", "b"))
    verified = ld.LandingVerified(
        landing_id="x", onto="main", before="1", commit="2", tree="3", stories=("a",)
    )
    landed = ld.Landed(landing_id="x", onto="main", commit="2", stories=("a",))
    left = ld.StoryNotLanded(story_id=B, landing_id="x", reason="conflicts with a in f", output=("line",))
    run = after(planned, verified, landed, left)
    assert (run.stories[A].workspace.landed, run.stories[A].workspace.landed_as) == ("main", "2")
    assert run.stories[B].workspace.unlanded == "conflicts with a in f"
    assert run.stories[B].workspace.landed == ""
    undo = ld.LandingUndoPlanned(landing_id="x", onto="main", before="2", commit="1", stories=("a",))
    run = after(planned, verified, landed, left, undo, ld.LandingUndone(landing_id="x", stories=("a",)))
    assert run.stories[A].workspace.landed == ""
    abandoned = ld.LandingAbandoned(landing_id="x", reason="killed")
    assert after(planned, verified, abandoned).stories == after().stories


def test_a_restacked_story_begins_at_its_new_base() -> None:
    """Its base and its commit are the new ones; an intent and its end without effect change nothing."""
    planned = ld.StoryRestackPlanned(
        story_id=A, onto="main", branch="autopilot/a", before="1", commit="2", base="3", kept="ref", commits=4
    )
    done = ld.StoryRestacked(story_id=A, onto="main", commit="2", base="3", kept="ref", commits=4)
    workspace = after(planned, done).stories[A].workspace
    assert (workspace.base, workspace.commit, workspace.commits) == ("3", "2", 4)
    left = ld.StoryNotRestacked(story_id=A, onto="main", reason="killed")
    unknown = ld.StoryRestacked(story_id=StoryId("gone"), onto="main", commit="2", base="3", kept="ref")
    assert after(planned, left, unknown) == after()


def test_a_run_knows_where_its_base_branch_was() -> None:
    """The base that it began with stays what it was."""
    run = after(base.BaseFollowed(base="2", before="1"))
    assert (run.base, run.followed) == (after().base, "2")

"""The order of the backlog: dependencies, urgency, the critical path, then the id; no contradictions."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.errors import BacklogError
from runner.core.model import Story, StoryId
from runner.core.schedule.graph import closure, critical_path, dependents, expected_durations, ordered, waves


def story(
    name: str,
    *depends_on: str,
    priority: int = 0,
    source: str = "",
    mode: str = "multi-story",
    estimate: float | None = None,
) -> Story:
    return Story(
        id=StoryId(name),
        title=name,
        prompt=name,
        priority=priority,
        estimate=estimate,
        depends_on=tuple(map(StoryId, depends_on)),
        source=source,
        mode=mode,
    )


@st.composite
def backlogs(draw: st.DrawFn) -> list[Story]:
    """Draw backlogs without cycles: the bits of a number choose among the earlier stories."""
    modes = st.sampled_from(["multi-story", "housekeeping"])
    estimates = st.none() | st.floats(0.001, 1000)
    row = st.tuples(st.integers(0, 511), st.integers(-2, 2), modes, estimates)
    rows = draw(st.lists(row, max_size=9))
    names = draw(st.permutations([f"s{number}" for number in range(len(rows))]))
    return [
        story(
            names[index],
            *(name for place, name in enumerate(names[:index]) if bits >> place & 1),
            priority=priority,
            mode=mode,
            estimate=estimate,
        )
        for index, (bits, priority, mode, estimate) in enumerate(rows)
    ]


def ids(stories: tuple[Story, ...]) -> list[str]:
    return [str(item.id) for item in stories]


def planned(backlog: list[Story]) -> tuple[Story, ...]:
    """Order a backlog by what its stories say of themselves."""
    return ordered(backlog, expected_durations(backlog, {}))


def urgency(backlog: list[Story], name: StoryId) -> int:
    """Return the highest priority of a story and of what waits for it, the slow and simple way."""
    return max(item.priority for item in backlog if item.id in {name, *dependents(backlog, name)})


def chain(backlog: list[Story], name: StoryId, durations: dict[StoryId, float]) -> float:
    """Return the longest time from a story's start to the end, the slow and simple way."""
    behind = [chain(backlog, item.id, durations) for item in backlog if name in item.depends_on]
    return durations.get(name, 1.0) + max(behind, default=0.0)


@given(backlogs(), st.randoms(use_true_random=False))
def test_order_is_the_same_however_the_stories_were_read(backlog: list[Story], chance: random.Random) -> None:
    """Acceptance 29: the same input gives the same plan, shuffled or not."""
    shuffled = list(backlog)
    chance.shuffle(shuffled)
    assert planned(shuffled) == planned(backlog)
    assert waves(shuffled) == waves(backlog)


@given(backlogs())
def test_dependencies_come_first_and_none_is_lost(backlog: list[Story]) -> None:
    """Every story comes after all that it depends on."""
    order = planned(backlog)
    assert sorted(ids(order)) == sorted(str(item.id) for item in backlog)
    position = {item.id: index for index, item in enumerate(order)}
    for item in backlog:
        assert all(position[name] < position[item.id] for name in item.depends_on)


@given(backlogs())
def test_a_story_is_in_the_wave_after_its_latest_dependency(backlog: list[Story]) -> None:
    """Waves are as early as dependencies allow, and hold every story once."""
    groups = waves(backlog)
    wave_of = {name: number for number, group in enumerate(groups) for name in group}
    assert sum(map(len, groups)) == len(backlog)
    for item in backlog:
        assert wave_of[item.id] == max((wave_of[name] + 1 for name in item.depends_on), default=0)


@given(backlogs())
def test_urgency_then_the_longest_chain_then_the_id(backlog: list[Story]) -> None:
    """Acceptance 29: priority dominates; among the equally urgent the longest chain is first, ties by id."""
    durations = expected_durations(backlog, {})
    keys = [
        (-urgency(backlog, item.id), -chain(backlog, item.id, durations), item.id)
        for item in planned(backlog)
    ]
    assert keys == sorted(keys)


@given(backlogs())
def test_where_nothing_is_known_only_the_number_of_stories_in_a_chain_counts(backlog: list[Story]) -> None:
    """Without any duration equal chains keep the order by id, and equal durations change nothing."""
    same = {item.id: 7.0 for item in backlog}
    assert ordered(backlog, {}) == ordered(backlog) == ordered(backlog, same)
    alone = [story(item.id, priority=item.priority) for item in backlog]
    assert ids(ordered(alone)) == [item.id for item in sorted(alone, key=lambda it: (-it.priority, it.id))]


def test_the_longest_chain_starts_first() -> None:
    """A short story with much work behind it goes before a long one with none."""
    backlog = [story("a", estimate=30), story("b", estimate=5), story("c", "b", estimate=40), story("d")]
    assert ids(planned(backlog)) == ["b", "c", "a", "d"]
    assert ids(ordered(backlog)) == ["b", "a", "c", "d"]


@given(backlogs())
def test_the_critical_path_is_a_chain_of_dependencies_and_none_is_longer(backlog: list[Story]) -> None:
    """Each of its stories waits for the one before, and it takes as long as the longest chain of all."""
    durations = expected_durations(backlog, {})
    path = critical_path(backlog, durations)
    by_id = {item.id: item for item in backlog}
    names = list(path)
    for before, after in itertools.pairwise(names):
        assert before in by_id[after].depends_on
    lengths = {item.id: chain(backlog, item.id, durations) for item in backlog}
    if len(set(lengths.values())) > 1:
        assert path[names[0]] == max(lengths.values())
        assert path == {name: lengths[name] for name in names}
    else:
        assert path == {}


def test_the_critical_path_leaves_out_what_is_over() -> None:
    """A dependency that is done already does not count any more."""
    backlog = [story("b", "a"), story("c", "b"), story("d", estimate=1)]
    assert critical_path(backlog, {}) == {"b": 2.0, "c": 1.0}


def test_durations_come_from_the_estimate_then_the_past_then_what_is_usual() -> None:
    """The author knows best, then experience (its median), then the median of all that is known."""
    backlog = [story("a", estimate=10), story("b"), story("c"), story("d", estimate=2)]
    past = {StoryId("b"): [3.0, 100.0, 5.0], StoryId("a"): [99.0]}
    assert expected_durations(backlog, past) == {"a": 10, "b": 5.0, "c": 5.0, "d": 2}
    assert expected_durations([story("a"), story("b")], {}) == {}


def test_higher_priority_goes_first_then_the_id() -> None:
    """Acceptance 21: the start order follows priority, then id."""
    order = ordered([story("c"), story("b"), story("a"), story("d", priority=1), story("e", priority=-1)])
    assert ids(order) == ["d", "a", "b", "c", "e"]


def test_a_dependency_inherits_the_urgency_of_what_waits_for_it() -> None:
    """The dependency of an urgent story goes before stories of middling priority."""
    order = ordered([story("a", priority=5), story("z"), story("y", "z"), story("x", "y", priority=9)])
    assert ids(order) == ["z", "y", "x", "a"]


def test_an_unknown_dependency_is_named_with_the_nearest_known() -> None:
    """Acceptance 25: a dependency that is absent from the backlog is an error that names it."""
    with pytest.raises(BacklogError, match=r"story b \(stories/b.md\) depends on 'api-33', which") as caught:
        ordered([story("api-3"), story("b", "api-33", source="stories/b.md")])
    assert caught.value.hint == "did you mean 'api-3'?"


def test_an_unknown_dependency_without_a_near_name_still_says_what_to_do() -> None:
    """The hint never stays empty."""
    with pytest.raises(BacklogError, match="story b depends on 'zzz'") as caught:
        ordered([story("b", "zzz")])
    assert "add the story 'zzz'" in caught.value.hint


def test_a_story_cannot_depend_on_itself() -> None:
    """A self-dependency has a message of its own."""
    with pytest.raises(BacklogError, match="story a depends on itself"):
        ordered([story("a", "a")])


@pytest.mark.parametrize(
    ("backlog", "cycle"),
    [
        ([story("a", "b"), story("b", "a")], "a → b → a"),
        ([story("b", "c"), story("c", "d"), story("d", "b"), story("a", "b"), story("x")], "b → c → d → b"),
        ([story("a", "z"), story("z", "m"), story("m", "z")], "m → z → m"),
    ],
)
def test_a_cycle_names_its_members_in_order(backlog: list[Story], cycle: str) -> None:
    """Acceptance 26: only the members of the cycle are named, from the smallest id on."""
    with pytest.raises(BacklogError) as caught:
        ordered(backlog)
    assert caught.value.message == f"stories wait for each other: {cycle}"


def test_a_dependency_named_twice_counts_once() -> None:
    """Repeating a dependency does not hold the story back for ever."""
    assert ids(ordered([story("b", "a", "a"), story("a")])) == ["a", "b"]


def test_a_very_long_chain_is_ordered() -> None:
    """Ten thousand stories in a row exhaust no stack."""
    chain = [story("s0")] + [story(f"s{number}", f"s{number - 1}") for number in range(1, 10_000)]
    assert ids(ordered(chain))[-1] == "s9999"


def test_only_keeps_the_named_stories_and_what_they_need() -> None:
    """`--only` selects the story and its dependencies, in the given order."""
    backlog = [story("d"), story("c", "b"), story("b", "a"), story("a"), story("e", "c", "a")]
    assert ids(closure(backlog, ["e", "c"])) == ["c", "b", "a", "e"]


def test_only_leaves_an_unknown_dependency_for_the_order_to_report() -> None:
    """Selecting does not hide that a dependency is missing."""
    kept = closure([story("a", "gone"), story("b")], ["a"])
    assert ids(kept) == ["a"]
    with pytest.raises(BacklogError, match="gone"):
        ordered(kept)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("api-33", "did you mean 'api-3'?"), ("qqq", "`autopilot-multi plan` lists the stories.")],
)
def test_only_with_an_unknown_id_is_an_error(name: str, hint: str) -> None:
    """An unknown id is never silently ignored."""
    with pytest.raises(BacklogError, match=f"no story '{name}'") as caught:
        closure([story("api-3")], [name])
    assert caught.value.hint == hint


def test_dependents_are_found_through_others() -> None:
    """All that wait for a story are named, once, and never the story itself."""
    backlog = [story("a"), story("b", "a"), story("c", "b", "a"), story("d", "b"), story("x")]
    assert dependents(backlog, StoryId("a")) == ("b", "c", "d")
    assert dependents(backlog, StoryId("x")) == ()

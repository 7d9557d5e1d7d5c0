"""How a backlog is spread over jobs: stages, chains and balanced shards."""

from hypothesis import given
from hypothesis import strategies as st

from runner.core.model import Story, StoryId
from runner.core.schedule.fanout import Job, fan_out


def story(name: str, *needs: str) -> Story:
    """Return a story that depends on others."""
    return Story(id=StoryId(name), title=name, prompt="", depends_on=tuple(StoryId(need) for need in needs))


def shape(stages: tuple[tuple[Job, ...], ...]) -> list[list[tuple[str, ...]]]:
    """Return the stories of every job."""
    return [[job.stories for job in stage] for stage in stages]


BACKLOG = [story("a"), story("b", "a"), story("c", "b"), story("x"), story("y", "x"), story("z")]


def test_a_stage_holds_what_depends_on_the_stages_before() -> None:
    """Each story is a job of its own, in the first stage that may have it."""
    stages = fan_out(BACKLOG)
    assert shape(stages) == [[("a",), ("x",), ("z",)], [("b",), ("y",)], [("c",)]]
    assert [job.name for job in stages[0]] == ["a", "x", "z"]


def test_the_last_stage_carries_the_rest_of_each_chain() -> None:
    """Fewer stages than levels put the levels that are left into one job a chain."""
    assert shape(fan_out(BACKLOG, stages=2)) == [[("a",), ("x",), ("z",)], [("b", "c"), ("y",)]]
    (chains,) = fan_out(BACKLOG, stages=1)
    assert [(job.name, job.stories) for job in chains] == [
        ("a+2", ("a", "b", "c")),
        ("x+1", ("x", "y")),
        ("z", ("z",)),
    ]


def test_stories_that_share_a_dependant_are_one_chain() -> None:
    """A story that needs two others pulls both into its job."""
    assert shape(fan_out([story("a"), story("b"), story("c", "b", "a")], stages=1)) == [[("a", "b", "c")]]


def test_a_chain_keeps_its_name_when_the_start_order_changes() -> None:
    """What stories took before decides which starts first, and no job is called otherwise for it."""
    names = {
        fan_out([*roots, story("c", "b", "a")], stages=1)[0][0].name
        for roots in ((story("a"), story("b")), (story("b"), story("a")))
    }
    assert names == {"a+2"}


def test_a_dependency_that_is_done_holds_nothing_back() -> None:
    """What is not in the list counts as done."""
    assert shape(fan_out([story("b", "a"), story("c", "b")])) == [[("b",)], [("c",)]]


def test_a_job_needs_those_that_carry_what_it_depends_on() -> None:
    """Also through others, in the order of the matrix, and never itself."""
    needs = {job.name: job.needs for stage in fan_out(BACKLOG) for job in stage}
    assert needs == {"a": (), "x": (), "z": (), "b": ("a",), "y": ("x",), "c": ("a", "b")}
    merged = {job.name: job.needs for stage in fan_out(BACKLOG, stages=2, shards=1) for job in stage}
    assert merged == {"stage-1+1-of-1": (), "stage-2+1-of-1": ("stage-1+1-of-1",)}
    assert {job.needs for job in fan_out(BACKLOG, stages=1)[0]} == {()}
    every = {job.name: job.needs for stage in fan_out(BACKLOG, need_all=True) for job in stage}
    assert (every["z"], every["y"], every["c"]) == ((), ("a", "x", "z"), ("a", "x", "z", "b", "y"))


def test_shards_are_balanced_by_past_durations() -> None:
    """The two long stories do not meet in one job, and the short ones fill up the other."""
    todo = [story(name) for name in "abcde"]
    seconds = {StoryId("a"): 100.0, StoryId("b"): 5.0, StoryId("c"): 90.0, StoryId("d"): 10.0}
    (jobs,) = fan_out(todo, shards=2, seconds=seconds)
    assert [job.name for job in jobs] == ["stage-1+1-of-2", "stage-1+2-of-2"]
    assert [set(job.stories) for job in jobs] == [{"a", "e"}, {"b", "c", "d"}] or [
        set(job.stories) for job in jobs
    ] == [{"a", "b", "d"}, {"c", "e"}]
    assert all({"a", "c"} - set(job.stories) for job in jobs)


def test_without_durations_shards_are_balanced_by_count() -> None:
    """Nobody knows better, so each job gets as many."""
    (jobs,) = fan_out([story(f"s{number}") for number in range(10)], shards=4)
    assert sorted(len(job.stories) for job in jobs) == [2, 2, 3, 3]


@st.composite
def backlogs(draw: st.DrawFn) -> list[Story]:
    """Return a backlog in start order."""
    number = draw(st.integers(0, 14))
    return [
        story(f"s{place}", *sorted(draw(st.sets(st.sampled_from([f"s{one}" for one in range(place)])))))
        if place
        else story("s0")
        for place in range(number)
    ]


@given(backlogs(), st.none() | st.integers(1, 4), st.none() | st.integers(1, 4))
def test_every_story_has_one_job_after_what_it_needs(
    todo: list[Story], stages: int | None, shards: int | None
) -> None:
    """Whatever the limits: each story once, after what it needs, under a name of its own, twice the same."""
    found = fan_out(todo, stages=stages, shards=shards)
    where = {name: job for stage in found for job in stage for name in job.stories}
    assert sorted(where) == sorted(one.id for one in todo)
    assert sum(len(job.stories) for stage in found for job in stage) == len(todo)
    for one in todo:
        for need in one.depends_on:
            mine, theirs = where[one.id], where[need]
            assert theirs.stage < mine.stage or theirs is mine
            if theirs is mine:
                assert mine.stories.index(need) < mine.stories.index(one.id)
    assert stages is None or len(found) <= stages
    assert shards is None or all(len(stage) <= shards for stage in found)
    names = [job.name for stage in found for job in stage]
    assert len(set(names)) == len(names)
    assert found == fan_out(todo, stages=stages, shards=shards)

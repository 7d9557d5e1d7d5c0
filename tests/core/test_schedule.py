"""Which stories may start: the window holds, a failed story releases none, and every wait has its reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.core.model import ContinuePolicy, Status, Story, StoryId, StorySnapshot
from runner.core.schedule.graph import ordered
from runner.core.schedule.relevant import Relevant
from runner.core.schedule.schedule import ScheduleDecision, Skip, decide
from tests.core.test_graph import backlogs, story

USUAL = ContinuePolicy.DEPENDENCIES_SUCCESSFUL


def ask(
    *stories: Story,
    window: int = 3,
    policy: ContinuePolicy = USUAL,
    admitting: bool = True,
    **statuses: Status,
) -> ScheduleDecision:
    """Decide over stories that are waiting or, without dependencies, queued unless stated otherwise."""
    known = {item.id: Status.WAITING if item.depends_on else Status.QUEUED for item in stories}
    known.update({StoryId(name): status for name, status in statuses.items()})
    return decide(stories, known, window, policy, admitting=admitting)


@st.composite
def situations(draw: st.DrawFn) -> tuple[tuple[Story, ...], dict[StoryId, Status]]:
    order = ordered(draw(backlogs()))
    statuses = draw(st.lists(st.sampled_from(Status), min_size=len(order), max_size=len(order)))
    return order, {item.id: status for item, status in zip(order, statuses, strict=True)}


@given(situations(), st.integers(min_value=0, max_value=5), st.sampled_from(ContinuePolicy), st.booleans())
def test_the_window_is_never_exceeded(
    situation: tuple[tuple[Story, ...], dict[StoryId, Status]],
    window: int,
    policy: ContinuePolicy,
    admitting: bool,  # noqa: FBT001  hypothesis passes by position
) -> None:
    """Acceptance 27: what runs and what starts together fit the window; nothing starts twice."""
    order, statuses = situation
    decision = decide(order, statuses, window, policy, admitting=admitting)
    running = sum(status is Status.RUNNING for status in statuses.values())
    assert not decision.start or running + len(decision.start) <= window
    assert all(statuses[name] in {Status.WAITING, Status.QUEUED} for name in decision.start)
    position = [item.id for item in order]
    assert list(decision.start) == sorted(decision.start, key=position.index)


@given(situations(), st.integers(min_value=0, max_value=5), st.sampled_from(ContinuePolicy))
def test_every_open_story_starts_waits_or_is_skipped(
    situation: tuple[tuple[Story, ...], dict[StoryId, Status]], window: int, policy: ContinuePolicy
) -> None:
    """No story falls between: each open one has exactly one of the three, with a reason."""
    order, statuses = situation
    decision = decide(order, statuses, window, policy, admitting=True)
    named = [*decision.start, *(skip.story_id for skip in decision.skip), *decision.waiting_for]
    still_open = [name for name, status in statuses.items() if status in {Status.WAITING, Status.QUEUED}]
    assert sorted(named) == sorted(still_open)
    assert all(skip.reason and skip.blocked_by for skip in decision.skip)
    assert all(decision.waiting_for.values())


@given(situations(), st.integers(min_value=0, max_value=5))
def test_only_a_done_dependency_releases(
    situation: tuple[tuple[Story, ...], dict[StoryId, Status]], window: int
) -> None:
    """Acceptance 22: no dependant of a story that ended otherwise ever starts or is called ready."""
    order, statuses = situation
    decision = decide(order, statuses, window, USUAL, admitting=True)
    by_id = {item.id: item for item in order}
    for name in (*decision.start, *decision.queue):
        assert all(statuses[dependency] is Status.DONE for dependency in by_id[name].depends_on)


@given(situations(), st.integers(min_value=1, max_value=5), st.sampled_from(ContinuePolicy))
def test_something_always_happens_unless_something_runs(
    situation: tuple[tuple[Story, ...], dict[StoryId, Status]], window: int, policy: ContinuePolicy
) -> None:
    """A run cannot get stuck: with nothing running, open stories start or are skipped."""
    order, statuses = situation
    decision = decide(order, statuses, window, policy, admitting=True)
    if Status.RUNNING not in statuses.values() and {Status.WAITING, Status.QUEUED} & set(statuses.values()):
        assert decision.start or decision.skip


@given(situations(), st.integers(min_value=0, max_value=5))
def test_one_decision_holds_all_skips(
    situation: tuple[tuple[Story, ...], dict[StoryId, Status]], window: int
) -> None:
    """Skips cascade immediately: deciding again after them finds no more of the same kind."""
    order, statuses = situation
    first = decide(order, statuses, window, USUAL, admitting=True)
    after = {**statuses, **{skip.story_id: Status.SKIPPED for skip in first.skip}}
    assert decide(order, after, window, USUAL, admitting=True).skip == ()


def test_a_story_that_runs_alone_starts_into_an_empty_house() -> None:
    """First in order it starts alone; what comes behind says whom it waits for."""
    decision = ask(story("a", mode="housekeeping"), story("b"), story("c", "a"))
    assert decision.start == ("a",)
    assert decision.waiting_for == {
        "b": "waits for a, which runs alone (mode housekeeping)",
        "c": "waits for a",
    }


def test_nothing_starts_while_one_runs_alone() -> None:
    """There is room in the window, and it stays empty."""
    decision = ask(story("a", mode="bootstrap"), story("b"), a=Status.RUNNING)
    assert decision.start == ()
    assert decision.waiting_for == {"b": "waits for a, which runs alone (mode bootstrap)"}


def test_a_story_that_runs_alone_waits_for_its_siblings_and_keeps_its_turn() -> None:
    """Those before it start, it waits for them, and none behind it overtakes."""
    stories = (story("a"), story("b", mode="housekeeping"), story("c"))
    decision = ask(*stories)
    assert decision.start == ("a",)
    assert decision.waiting_for == {
        "b": "runs alone (mode housekeeping): waits for a",
        "c": "waits for b, which runs alone (mode housekeeping)",
    }
    assert ask(*stories, a=Status.RUNNING).start == ()
    assert ask(*stories, a=Status.FAILED).start == ("b",)
    assert ask(*stories, a=Status.DONE, b=Status.PARKED).start == ("c",), "a parked one holds up none"


def test_a_story_that_runs_alone_and_is_not_ready_holds_up_none() -> None:
    """Only what could start keeps a turn."""
    stories = (story("a"), story("b", "a", mode="housekeeping"), story("c"))
    assert ask(*stories).start == ("a", "c")
    full = ask(story("a"), story("b", mode="housekeeping"), window=0)
    assert full.waiting_for[StoryId("b")] == "waits for a free slot (0 of 0 running)"


def test_no_story_is_alone_beside_one_that_still_cleans_up() -> None:
    """A verdict frees the slot, not the repository: hooks and closing still run."""
    stories = (story("a"), story("b", mode="housekeeping"))
    statuses = {StoryId("a"): Status.DONE, StoryId("b"): Status.QUEUED}
    decision = decide(stories, statuses, 3, USUAL, admitting=True, leaving=[StoryId("a")])
    assert decision.start == ()
    assert decision.waiting_for == {"b": "runs alone (mode housekeeping): waits for a"}
    turned = {StoryId("a"): Status.QUEUED, StoryId("b"): Status.DONE}
    decision = decide(stories, turned, 3, USUAL, admitting=True, leaving=[StoryId("b")])
    assert decision.waiting_for == {"a": "waits for b, which runs alone (mode housekeeping)"}
    usual = {StoryId("a"): Status.DONE, StoryId("c"): Status.QUEUED}
    full = decide((story("a"), story("c")), usual, 1, USUAL, admitting=True, leaving=[StoryId("a")])
    assert full.start == ("c",), "among the others nothing changes"


@given(situations(), st.integers(min_value=0, max_value=5), st.sampled_from(ContinuePolicy))
def test_one_that_runs_alone_never_gets_company(
    situation: tuple[tuple[Story, ...], dict[StoryId, Status]], window: int, policy: ContinuePolicy
) -> None:
    """Whatever is decided, no story starts beside an exclusive one, nor the exclusive one beside another."""
    order, statuses = situation
    decision = decide(order, statuses, window, policy, admitting=True)
    alone = {item.id for item in order if item.mode == "housekeeping"}
    running = {name for name, status in statuses.items() if status is Status.RUNNING}
    if alone & running:
        assert decision.start == ()
    if alone & set(decision.start):
        assert len(decision.start) == 1
        assert not running


def test_the_first_of_the_order_take_the_free_places() -> None:
    """Acceptance 27: with two places and one running, one more starts: the first."""
    decision = ask(story("a"), story("b"), story("c"), window=2, a=Status.RUNNING)
    assert decision.start == ("b",)
    assert decision.waiting_for == {"c": "waits for a free slot (2 of 2 running)"}


def test_a_window_that_fell_starts_nothing_and_evicts_none() -> None:
    """Acceptance 28: with three running and a window of one, nothing new starts."""
    stories = (story("a"), story("b"), story("c"), story("d"))
    decision = ask(*stories, window=1, a=Status.RUNNING, b=Status.RUNNING, c=Status.RUNNING)
    assert decision.start == ()
    assert decision.waiting_for == {"d": "waits for a free slot (3 of 1 running)"}


def test_a_story_that_became_ready_is_queued_and_may_start_at_once() -> None:
    """Its dependencies being done makes a waiting story ready; a queued one is not queued again."""
    decision = ask(story("a"), story("b", "a"), story("c"), story("d", "a"), window=2, a=Status.DONE)
    assert decision.queue == ("b", "d")
    assert decision.start == ("b", "c")


def test_a_waiting_story_names_what_it_waits_for() -> None:
    """Acceptance 21: only the dependencies that are not done yet are named."""
    stories = (story("a"), story("b"), story("c"), story("d", "a", "b", "c"))
    decision = ask(*stories, window=1, a=Status.DONE, b=Status.RUNNING)
    assert decision.waiting_for[StoryId("d")] == "waits for b, c"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.FAILED, "failed"),
        (Status.SKIPPED, "was skipped"),
        (Status.NO_WORK, "had nothing to commit"),
    ],
)
def test_a_dependency_that_ended_otherwise_skips_its_dependant(status: Status, words: str) -> None:
    """Acceptance 22: the dependent is skipped immediately, and names the story to blame."""
    decision = ask(story("a"), story("x"), story("b", "a"), a=status, x=Status.RUNNING)
    assert decision.skip == (
        Skip(story_id=StoryId("b"), blocked_by=(StoryId("a"),), reason=f"depends on a, which {words}"),
    )


def test_no_change_releases_dependants_where_the_story_says_so() -> None:
    """A dependency that may leave everything as it is counts as done."""
    fine = replace(story("a"), allow_no_change=True)
    decision = ask(fine, story("b", "a"), story("c", "b"), a=Status.NO_WORK)
    assert (decision.start, decision.skip) == ((StoryId("b"),), ())


def test_a_chain_of_skips_names_its_root() -> None:
    """Who is skipped because of a skipped story learns which story failed, in the same decision."""
    stories = (story("a"), story("f"), story("b", "a"), story("c", "b"), story("d", "c", "f"))
    decision = ask(*stories, a=Status.FAILED, f=Status.FAILED)
    assert [skip.reason for skip in decision.skip] == [
        "depends on a, which failed",
        "depends on b, which was skipped because of a",
        "depends on c, which was skipped because of a and on f, which failed",
    ]
    assert decision.skip[2].blocked_by == ("c", "f")


def test_the_root_is_found_once_through_a_diamond() -> None:
    """Two ways down to the same failure name it once."""
    stories = (story("a"), story("d"), story("b", "a", "d"), story("c", "a", "b"), story("e", "c"))
    decision = ask(*stories, a=Status.FAILED, d=Status.DONE)
    assert decision.skip[-1].reason == "depends on c, which was skipped because of a"


@pytest.mark.parametrize(
    ("status", "words"), [(Status.PARKED, "waits for a decision"), (Status.STOPPED, "was stopped")]
)
def test_a_dependency_that_may_come_back_holds_its_dependant_until_nothing_else_can_run(
    status: Status, words: str
) -> None:
    """Parked and stopped release none; the dependent is skipped only at the end."""
    stories = (story("a"), story("x"), story("b", "a"))
    busy = ask(*stories, a=status, x=Status.RUNNING)
    assert busy.skip == ()
    assert busy.waiting_for == {"b": f"waits for a, which {words}"}
    ready = ask(*stories, a=status)
    assert (ready.start, ready.skip) == (("x",), ())
    idle = ask(*stories, a=status, x=Status.DONE)
    assert [(skip.story_id, skip.reason) for skip in idle.skip] == [("b", f"depends on a, which {words}")]
    assert idle.waiting_for == {}


def test_a_full_window_is_no_reason_to_give_up_a_parked_dependency() -> None:
    """While another story is ready, even with no place for it, the dependant is not skipped."""
    decision = ask(story("a"), story("x"), story("b", "a"), window=0, a=Status.PARKED)
    assert (decision.start, decision.skip) == ((), ())


def test_continue_never_skips_everything_after_a_failure() -> None:
    """With `--continue never` one failure ends admission, and names the story."""
    stories = (story("a"), story("b"), story("c", "b"), story("d"))
    decision = ask(*stories, policy=ContinuePolicy.NEVER, a=Status.FAILED, d=Status.RUNNING)
    assert decision.start == decision.queue == ()
    assert [(skip.story_id, skip.blocked_by) for skip in decision.skip] == [("b", ("a",)), ("c", ("a",))]
    assert decision.skip[0].reason.startswith("a failed, ")


def test_continue_never_runs_on_while_nothing_failed() -> None:
    """A story that had nothing to do is no failure of the run."""
    decision = ask(story("a"), story("b"), policy=ContinuePolicy.NEVER, a=Status.NO_WORK)
    assert decision.start == ("b",)


def test_continue_always_starts_dependents_once_their_dependencies_have_a_verdict() -> None:
    """`--continue always` is a wish that is obeyed, but it never jumps the queue."""
    stories = (story("a"), story("b"), story("c", "a"), story("d", "a", "b"))
    decision = ask(*stories, policy=ContinuePolicy.ALWAYS, a=Status.FAILED, b=Status.RUNNING)
    assert decision.start == ("c",)
    assert decision.skip == ()
    assert decision.waiting_for == {"d": "waits for b"}


def test_without_admission_nothing_starts_and_nothing_is_skipped() -> None:
    """When the run is ending, verdicts of open stories are left to the code that ends it."""
    decision = ask(story("a"), story("b", "a"), story("c"), admitting=False, a=Status.FAILED)
    assert (decision.start, decision.queue, decision.skip) == ((), (), ())
    assert set(decision.waiting_for) == {"b", "c"}


def test_a_ladder_of_diamonds_is_decided_at_once() -> None:
    """Sixty levels with two ways each have 2^60 paths, and one root."""
    stories = [story("root")]
    for level in range(60):
        below = [item.id for item in stories[-2:]]
        stories += [story(f"l{level}", *below), story(f"r{level}", *below)]
    decision = ask(*stories, root=Status.FAILED)
    assert len(decision.skip) == 120
    assert decision.skip[-1].reason.endswith("which was skipped because of root")


def test_a_held_story_waits_and_leaves_its_place_to_others() -> None:
    """One whose agent is at its limit is ready and does not start; the next one does."""
    order = (story("a"), story("b"), story("c", "a"))
    statuses = dict.fromkeys([StoryId("a"), StoryId("b")], Status.QUEUED) | {StoryId("c"): Status.WAITING}
    held = {StoryId("a"): "at its limit", StoryId("c"): "at its limit"}
    decision = decide(order, statuses, 1, USUAL, admitting=True, held=held)
    assert (decision.start, decision.skip) == (("b",), ())
    assert decision.waiting_for == {"a": "at its limit", "c": "waits for a"}


def test_next_are_those_that_only_lack_a_place() -> None:
    """What waits for another story, for its agent or for a quiet house is not prepared."""
    a, b, c = story("a"), story("b"), story("c")
    waits = story("d", "a")
    assert ask(a, b, c, waits, window=1, a=Status.RUNNING).next == ("b", "c")
    assert ask(a, b, c, window=2, a=Status.RUNNING).next == ("c",)
    queued = {item.id: Status.QUEUED for item in (a, b, c)}
    held = decide((a, b, c), queued, 1, USUAL, admitting=True, held={StoryId("b"): "at its limit"})
    assert (held.start, held.next) == (("a",), ("c",))
    alone = story("x", mode="housekeeping")
    assert ask(a, b, alone, window=1, a=Status.RUNNING).next == ()
    assert ask(a, b, window=1, admitting=False).next == ()


@given(
    st.lists(st.lists(st.sampled_from(Status), min_size=12, max_size=12), min_size=1, max_size=4),
    st.integers(min_value=0, max_value=4),
)
def test_a_narrowed_backlog_gives_the_same_decision(rounds: list[list[Status]], window: int) -> None:
    """Of stories without dependencies, those behind the first that may start change nothing."""
    order = tuple(story(f"s{number:02}") for number in range(12))
    relevant = Relevant(order)
    for found in rounds:
        statuses = {item.id: status for item, status in zip(order, found, strict=True)}
        now = {name: StorySnapshot(id=name, title="", status=status) for name, status in statuses.items()}
        relevant.start_over()
        active = [name for name, status in statuses.items() if status is Status.RUNNING]
        some = relevant.stories(now, active=active, most=window + 2)
        few = decide(some, {item.id: statuses[item.id] for item in some}, window, USUAL, admitting=True)
        all_ = decide(order, statuses, window, USUAL, admitting=True)
        assert (few.start, few.skip, few.next[:2]) == (all_.start, all_.skip, all_.next[:2])
        assert [item.id for item in some] == sorted(item.id for item in some)

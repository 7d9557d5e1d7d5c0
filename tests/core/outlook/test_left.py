"""How much longer a run takes: from what is known, in words that do not promise more, and else unknown."""

from msgspec.structs import replace

from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.events.fold import apply
from runner.core.events.steering import AdmissionPaused
from runner.core.model import RunSnapshot, StoryId
from runner.core.outlook.left import Range, Sample, left_words, outlook
from runner.core.outlook.past import past_samples
from runner.core.past_runs import PastRun, PastStory
from tests.records.sample_runs import START, done, event, snapshot, started, working

A = StoryId("a")


def took(name: str, *seconds: float, agent: str = "claude", cost: float | None = None) -> list[Sample]:
    return [Sample(story_id=StoryId(name), agent=agent, seconds=each, cost_usd=cost) for each in seconds]


def left_of(run: RunSnapshot, past: list[Sample], *, after: float) -> Range | None:
    return outlook(run, past, START + after).stories.get(A)


def test_own_past_counts_and_what_it_has_worked_is_taken_off() -> None:
    """Ten minutes last time and two minutes so far: eight are left."""
    run = snapshot([started("a"), *working("a", 0)])
    left = left_of(run, took("a", 600), after=120)
    assert left == Range(low=480, likely=480, high=480)
    assert left_words(left) == "~8 min"


def test_what_was_shorter_than_this_one_says_nothing() -> None:
    """A story that takes longer than ever before has no known end."""
    run = snapshot([started("a"), *working("a", 0)])
    assert left_of(run, took("a", 60, 600), after=120) == Range(low=480, likely=480, high=480)
    assert left_of(run, took("a", 60), after=120) is None
    assert left_words(None) == ""


def test_an_estimate_and_stories_of_the_same_agent() -> None:
    """The author's estimate counts before other stories; of those, three of the same agent are needed."""
    run = snapshot([started("a"), *working("a", 0)])
    two, three = took("x", 300, 360), took("x", 240, 300, 360)
    assert left_of(run, two, after=60) is None
    assert left_of(run, took("x", 1, 2, 3, agent="codex"), after=0) is None
    assert left_of(run, three, after=60) == Range(low=180, likely=240, high=300)
    told = replace(run, stories={A: replace(run.stories[A], estimate=20.0)})
    assert left_of(told, three, after=60) == Range(low=1140, likely=1140, high=1140)


def test_a_run_ends_with_its_last_story_in_its_slots() -> None:
    """Two slots, three stories of ten minutes, one of them behind another: twenty minutes."""
    past = took("a", 600) + took("b", 600) + took("c", 600)
    run = snapshot([started("a", "b", ("c", ["a"]), max_stories=2), *working("a", 0), *working("b", 0)])
    found = outlook(run, past, START).left
    assert found is not None
    assert found.likely == 1200
    one = replace(run, window=1)
    narrow = outlook(one, past, START + 300).left
    assert narrow is not None
    assert narrow.likely == 900
    unknown = took("a", 600) + took("b", 600)
    assert outlook(run, unknown, START).left is None, "c is unknown, and so is the end"


def test_a_pause_or_a_wait_for_budget_makes_the_end_unknown_and_a_limit_is_added() -> None:
    """Nobody knows when somebody continues; when a limit ends is known."""
    past = took("a", 600) + took("b", 600)
    run = snapshot([started("a", "b", max_stories=2), *working("a", 0)])
    assert outlook(apply(run, event(1, AdmissionPaused(by="person"))), past, START).left is None
    budget = apply(run, event(1, ag.BudgetAwaited(story_id=A, reason="")))
    assert outlook(budget, past, START).left is None
    limit = ag.AgentPaused(
        story_id=A, agent="claude", until=START + 3600, reason="", everyone=True, fresh=False
    )
    left = outlook(apply(run, event(0.1, limit)), past, START + 10).left
    assert left is not None
    assert round(left.likely) == 3590 + 600


def test_an_ended_run_and_stories_behind_a_parked_one_have_nothing_left() -> None:
    """What cannot run is not waited for."""
    parked = ev.StoryFinished(story_id=A, verdict="parked", reason="which?")
    run = snapshot([started("a", "b", ("c", ["a"])), event(1, parked), *working("b", 0)])
    left = outlook(run, took("b", 120), START + 60).left
    assert left is not None
    assert round(left.likely) == 60
    assert outlook(replace(run, ended_at=START + 70), took("b", 120), START + 60).left is None


def test_spending_is_known_only_if_it_is_known_of_every_story() -> None:
    """What is done counts as it is, what runs by its past, and not less than it has spent."""
    run = snapshot([started("a", "b"), *working("b", 0), *done("b", 9), *working("a", 10)])
    assert outlook(run, [], START + 20).cost_usd is None
    found = outlook(run, took("a", 60, cost=2.0), START + 20)
    assert (found.cost_usd, found.cost) == (2.25, {A: 2.0})


def test_words_are_as_wide_as_the_knowledge() -> None:
    """A narrow range is one number, a wide one is two, and hours are hours."""
    assert left_words(Range(low=10, likely=20, high=50)) == "<1 min"
    assert left_words(Range(low=500, likely=540, high=600)) == "~9 min"
    assert left_words(Range(low=300, likely=600, high=900)) == "5-15 min"
    assert left_words(Range(low=6000, likely=7500, high=9000)) == "~2 h 05 min"


def test_past_runs_are_samples_with_their_agent() -> None:
    """Only stories that were done by sessions of that run count."""
    stories = tuple(
        PastStory(run_id="r", id=name, verdict=verdict, seconds=5.0, sessions=number)
        for name, verdict, number in (("a", "done", 1), ("b", "failed", 1), ("c", "done", 0))
    )
    sessions = [{"autopilot_run_id": "r/a", "agent_identity": "codex", "session_kind": "work"}]
    assert past_samples([PastRun(id="r", stories=stories)], sessions) == (
        Sample(story_id=A, agent="codex", seconds=5.0),
    )

"""What a story waits for is said in words, and nothing is said of one that works."""

import time

import pytest
from msgspec.structs import replace

from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.events.base import BaseCheckStarted
from runner.core.events.fold import apply
from runner.core.events.steering import AdmissionPaused
from runner.core.model import RunSnapshot, StoryId
from runner.core.outlook.waiting import Cause, Waiting, waiting
from tests.records.sample_runs import START, event, failed, snapshot, started, working
from tests.report.asking import COLOUR, asks

NOW = START + 100
A, B = StoryId("a"), StoryId("b")


def found(run: RunSnapshot, name: StoryId = A) -> Waiting | None:
    return waiting(run.stories[name], run, NOW)


def words(run: RunSnapshot, name: StoryId = A) -> str:
    one = found(run, name)
    return one.words if one else ""


def at(seconds: float) -> str:
    return time.strftime("%H:%M", time.localtime(START + seconds))


def test_a_story_that_works_or_has_ended_waits_for_nothing() -> None:
    """Nothing is said where there is nothing to wait for."""
    run = snapshot([started("a", "b"), *working("a", 1), *working("b", 2), *failed("b", 9, "no")])
    assert (found(run), found(run, B)) == (None, None)


def test_dependencies_are_named_with_what_became_of_them() -> None:
    """Those that are not done yet, and why one will not be done soon."""
    events = [started("c", "d", ("a", ["c", "d"])), *working("c", 1)]
    assert words(snapshot(events)) == "waits for c, d"
    parked = ev.StoryFinished(story_id=StoryId("d"), verdict="parked", reason="which?")
    assert words(snapshot([*events, event(2, parked)])) == "waits for c, d, which needs you"


def test_a_ready_story_waits_for_a_slot_a_pause_the_base_or_its_turn() -> None:
    """The first reason that holds: the end of the run, a pause, no slot, the base, an agent's limit."""
    full = snapshot([started("b", "a", max_stories=1), *working("b", 1)])
    assert words(full) == "waits for a free slot"
    assert words(apply(full, event(2, AdmissionPaused(by="person")))) == "paused"
    ended = ev.AdmissionEnded(name="user-abort", detail="stopped by you (Ctrl-C)", hint="")
    assert words(apply(full, event(2, ended))) == "no new story starts"
    idle = snapshot([started("b", "a")])
    assert words(idle) == "starts now"
    asked = BaseCheckStarted(command="make test", shared=True, log="")
    assert words(apply(idle, event(1, asked))) == "waits for the check of the base"
    assert words(replace(idle, pauses={"claude": NOW + 60})) == f"rate limit until {at(160)}"
    assert words(snapshot([started("b", "a"), *working("b", 1)])) == "waits for its turn"
    assert words(replace(idle, options={"cluster": "local:4"})) == "waits for a worker"


@pytest.mark.parametrize(
    ("everyone", "cause", "said"),
    [
        (True, Cause.LIMIT, f"rate limit until {at(4000)}"),
        (False, Cause.SERVICE, f"claude does not answer, retried at {at(4000)}"),
    ],
)
def test_a_story_in_its_slot_waits_for_its_agent(everyone: bool, cause: Cause, said: str) -> None:  # noqa: FBT001  a parameter
    """Until when is said, and known to programs as an instant."""
    paused = ag.AgentPaused(
        story_id=A, agent="claude", until=START + 4000, reason="429", everyone=everyone, fresh=False
    )
    one = found(snapshot([started("a"), *working("a", 1), event(3, paused)]))
    assert one == Waiting(cause=cause, words=said, until=START + 4000, detail="429")


def test_budget_and_questions() -> None:
    """The figures are a detail; a question is said with its title."""
    budget = ag.BudgetAwaited(story_id=A, reason="a session is expected to spend $1.00")
    one = found(snapshot([started("a"), *working("a", 1), event(3, budget)]))
    assert one is not None
    assert (one.words, one.detail) == ("waiting for budget", "a session is expected to spend $1.00")
    assert words(snapshot([started("a"), *asks("a", 1, COLOUR)])) == f"needs you: {COLOUR.title}"


def test_a_limit_of_days_names_the_day() -> None:
    """A time of day alone would be wrong."""
    paused = ag.AgentPaused(
        story_id=A, agent="claude", until=NOW + 3 * 86400, reason="429", everyone=True, fresh=False
    )
    run = snapshot([started("a"), *working("a", 1), event(3, paused)])
    assert words(run) == "rate limit until " + time.strftime(
        "%Y-%m-%d %H:%M", time.localtime(NOW + 3 * 86400)
    )

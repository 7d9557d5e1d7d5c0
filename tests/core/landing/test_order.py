"""The order of a landing, and what landings do to the state of stories."""

from runner.core.events import landing as ld
from runner.core.events.events import Body, Event, RunStarted, decode, encode
from runner.core.events.fold import apply, fold
from runner.core.landing.order import landing_order
from runner.core.model import RunId, RunSnapshot, StoryId

RUN = RunId("run")
A, B, C, D = (StoryId(name) for name in "abcd")


def test_dependencies_come_first_then_those_with_few_conflicts_then_ids() -> None:
    """A story with conflicts waits behind others, but never behind its own dependents."""
    needs: dict[StoryId, set[StoryId]] = {A: {D}, B: set(), C: set(), D: set()}
    assert landing_order(needs, {}) == (B, C, D, A)
    assert landing_order(needs, {B: (C,), C: (B,), D: (B, C)}) == (B, C, D, A)
    assert landing_order(needs, {B: (C, D), D: (B,), C: (B,)}) == (C, D, A, B)


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
    assert after(planned, verified, abandoned) == after()

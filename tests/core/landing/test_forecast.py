"""From conflicts to a forecast, and from its event to the state of a run."""

from msgspec.structs import replace

from runner.core.events import landing as ld
from runner.core.events.events import Event, RunStarted, decode, encode
from runner.core.events.fold import apply, fold
from runner.core.forecast.clashes import Clash, Forecast
from runner.core.landing.forecast import TARGET, Tip, foresee
from runner.core.model import RunId, RunSnapshot, StoryId
from runner.core.text.conflicts import clash_text, conflict_line

RUN = RunId("run")
A, B, C = (StoryId(name) for name in "abc")


def tip(story: StoryId, since: float = 0.0, *needs: StoryId) -> Tip:
    return Tip(id=story, commit=f"commit of {story}", needs=needs, since=since)


def test_a_forecast_has_the_order_and_what_it_costs() -> None:
    """A story that conflicts with the target is lost in any order, one that costs two comes last."""
    found = {("a", "b"): (("f",), ""), ("a", "c"): (("g", "h"), "")}
    made = foresee((tip(A), tip(B, 2.0), tip(C, 1.0)), found, "main")
    assert (made.order, made.lost) == ((C, B, A), (A,))
    assert [clash.files for clash in made.clashes] == [("f",), ("g", "h")]
    stuck = foresee((tip(A), tip(B, 0.0, A), tip(C)), {(TARGET, A): (("f",), "")}, "main")
    assert (stuck.order, stuck.lost) == ((C, A, B), (A, B))
    assert stuck.clashes == (Clash(stories=(A,), files=("f",)),)
    assert foresee((tip(A, 2.0), tip(B, 1.0)), {}).order == (B, A)


def foreseen(*clashes: Clash, more: int = 0) -> RunSnapshot:
    """Return a run after its forecast went through the journal."""
    stories = tuple({"id": name, "title": name, "depends_on": []} for name in "abc")
    begun = RunStarted(
        base="0", isolation="worktree", enforcement="none", max_stories=1, options={}, stories=stories
    )
    documents = tuple({"stories": [*each.stories], "files": [*each.files], "reason": ""} for each in clashes)
    body = ld.ConflictsForeseen(clashes=documents, order=("b", "a"), lost=("a",), onto="main", more=more)
    events = [Event(run_id=RUN, at=1.0, body=each) for each in (begun, decode(*encode(body)))]
    run = fold(RUN, events)
    assert apply(apply(RunSnapshot(run_id=RUN, started_at=0.0), events[0]), events[1]) == run
    return run


def test_the_newest_forecast_is_the_run_s() -> None:
    """It survives the journal; a later one without conflicts replaces it."""
    clash = Clash(stories=("a", "b"), files=("f",))
    run = foreseen(clash)
    assert run.forecast == Forecast(
        stories=("b", "a"), clashes=(clash,), order=("b", "a"), lost=("a",), onto="main"
    )
    later = apply(run, Event(run_id=RUN, at=2.0, body=ld.ConflictsForeseen()))
    assert conflict_line(later) == ""


def test_one_line_names_a_few_conflicts_and_counts_the_rest() -> None:
    """With files, the target by its name; what has landed is not named any more."""
    pairs = [Clash(stories=("a", "b"), files=("f", "g", "h", "i")), Clash(stories=("c",), files=("f",))]
    run = foreseen(*pairs)
    assert conflict_line(run) == "will conflict: a and b: f, g, h and 1 more; c and main: f"
    assert conflict_line(foreseen(*pairs, *pairs, more=2)).endswith("; 3 more pairs")
    landed = replace(run.stories[A], workspace=replace(run.stories[A].workspace, landed="main"))
    assert conflict_line(replace(run, stories={**run.stories, A: landed})) == "will conflict: c and main: f"
    assert clash_text(Clash(stories=("a", "b"), reason="no history"), "main") == "a and b: no history"

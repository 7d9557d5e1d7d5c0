"""What is known of a landing, folded from its events: one run's copy or those of the whole landing."""

from runner.core.events import landing as ld
from runner.core.events.folds.landing_fold import Landings, landings_after
from runner.core.progress.landing import Car, LandingProgress, LandingState

L = "20260102-120000-ab"


def folded(*bodies: ld.LandingBody) -> LandingProgress:
    found: Landings = ()
    for number, body in enumerate(bodies):
        found = landings_after(found, body, float(number))
    (one,) = found
    return one


PLANNED = ld.LandingPlanned(landing_id=L, onto="main", tip="t", stories=("a",), train=("a", "b", "c", "d"))


def begun(number: int, *stories: str) -> ld.BatchStarted:
    return ld.BatchStarted(landing_id=L, number=number, stories=stories)


def ended(number: int, outcome: str, *stories: str, runs: int = 0) -> ld.BatchEnded:
    return ld.BatchEnded(landing_id=L, number=number, stories=stories, outcome=outcome, verify_runs=runs)


def test_several_sequences_at_once() -> None:
    """Each that is verified now is in flight; the longest green one is what would land."""
    one = folded(
        PLANNED,
        begun(1, "a"),
        begun(2, "a", "b"),
        begun(3, "a", "b", "c"),
        ld.MergeConflicted(landing_id=L, story="d", onto=("a",)),
        ended(1, "green", "a", runs=2),
    )
    assert [batch.stories for batch in one.in_flight] == [("a", "b"), ("a", "b", "c")]
    assert one.green == ("a",)
    assert one.verify_runs == 2
    assert list(one.cars().values()) == [Car.VERIFYING, Car.VERIFYING, Car.VERIFYING, Car.CONFLICT]


def test_a_story_is_red_only_if_it_was_green_without_it() -> None:
    """A red sequence says nothing about its members until one of its beginnings is green."""
    red = (PLANNED, begun(1, "a", "b", "c"), ended(1, "red", "a", "b", "c"))
    assert set(folded(*red).cars().values()) == {Car.WAITING}
    narrowed = (*red, begun(2, "a", "b"), ended(2, "green", "a", "b"))
    assert list(folded(*narrowed).cars().values()) == [Car.GREEN, Car.GREEN, Car.RED, Car.WAITING]


def test_a_moved_target_makes_everything_open_again() -> None:
    """What was found on the old tip does not count on the new one."""
    one = folded(
        PLANNED,
        begun(1, "a"),
        ended(1, "green", "a", runs=1),
        ld.TrainRebuilt(landing_id=L, tip="u", number=1),
    )
    assert (one.tip, one.rebuilds, one.verify_runs) == ("u", 1, 1)
    assert set(one.cars().values()) == {Car.WAITING}


def test_the_end_tells_of_all_runs() -> None:
    """One run's copy of `Landed` names its own stories, the end those of the others, too."""
    verified = ld.LandingVerified(
        landing_id=L, onto="main", before="t", commit="c", tree="x", stories=("a",), verify_runs=3
    )
    landed = ld.Landed(landing_id=L, onto="main", commit="c", stories=("a",))
    whole = ld.LandingEnded(
        landing_id=L,
        landed=("a", "b"),
        left=({"story": "c", "why": "red", "reason": "broken", "with": []},),
        after="c",
        verify_runs=3,
    )
    assert folded(PLANNED, verified).state is LandingState.MOVING
    one = folded(PLANNED, verified, landed, whole, whole)
    assert (one.state, one.landed, one.before, one.after) == (LandingState.LANDED, ("a", "b"), "t", "c")
    assert list(one.cars().values()) == [Car.LANDED, Car.LANDED, Car.LEFT, Car.WAITING]
    undoing = ld.LandingUndoPlanned(landing_id=L, onto="main", before="c", commit="t", stories=("a",))
    abandoned = ld.LandingAbandoned(landing_id=L, reason="moved")
    kept = folded(PLANNED, verified, landed, undoing, abandoned, abandoned)
    assert kept.state is LandingState.LANDED, "it is the undoing that was given up"
    gone = folded(PLANNED, verified, landed, undoing, ld.LandingUndone(landing_id=L, stories=("a",)))
    assert gone.was_undone
    assert folded(PLANNED, abandoned).state is LandingState.ABANDONED


def test_nothing_landed() -> None:
    """With the reason, where the target itself is red."""
    one = folded(PLANNED, ld.LandingEnded(landing_id=L, red_target="make test"))
    assert one.state is LandingState.NOTHING
    assert "make test" in one.reason

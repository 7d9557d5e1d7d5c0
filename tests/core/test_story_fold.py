"""What a story is after its events, where a mistake would lose work, repeat it, or ask for nothing."""

from msgspec.structs import replace

from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.events.cluster import StoryLost, StoryPlaced
from runner.core.model import Outcome, Status
from tests.core.test_fold import A, ended, finished, one, session

OPENED = ev.WorkspaceOpened(story_id=A, branch="autopilot/a", path="/w/a", base="b", head="h")
PLANNED = ev.WorkspacePlanned(story_id=A, branch="autopilot/a", path="/w/a")
FAILED = ev.AttemptFailed(story_id=A, attempt=1, reason="no", output="out")


def asked(kind: str = "confidence", name: str = "d1") -> ev.DecisionAsked:
    return ev.DecisionAsked(story_id=A, decision_id=name, question={"kind": kind})


def applied(name: str = "d1", *, retry: bool = False) -> ev.DecisionApplied:
    return ev.DecisionApplied(story_id=A, decision_id=name, retry=retry)


def test_a_persons_word_on_where_to_continue_holds_for_one_session() -> None:
    """The next work session is asked about again; a verify command uses nothing up."""
    settled = (asked(), applied())
    assert one(*settled).settled
    assert one(*settled, session(kind="verify")).settled
    assert not one(*settled, session()).settled


def test_an_answer_to_another_question_changes_nothing() -> None:
    """The open decision stays open, whatever is said of an earlier one."""
    answer = ev.DecisionAnswered(story_id=A, decision_id="d0", letter="A", by="me")
    after = one(asked(name="d1"), answer, applied("d0", retry=True))
    assert after.decision is not None
    assert (after.decision.id, after.decision.letter, after.decided) == ("d1", "", ())


def test_a_step_that_was_skipped_is_not_finished() -> None:
    """It is remembered as skipped, so that its artifacts do not count as made."""

    def over(number: str, *, skipped: bool) -> ev.StepFinished:
        return ev.StepFinished(
            story_id=A, step_number=number, step_name="x", next_number="3", next_name="y", skipped=skipped
        )

    later = replace(over("5", skipped=True), next_number="9", ahead=True)
    passed = (over("1", skipped=False), over("2", skipped=True), later)
    after = one(*passed)
    assert (after.finished_steps, after.skipped_steps) == (("1",), ("2", "5"))
    assert after.place.number == "3", "a later step is skipped from where the story is"
    back = ev.PlaceFound(story_id=A, step_number="1", step_name="x", confidence=1.0, again=("1", "2"))
    again = one(*passed, back)
    assert (again.finished_steps, again.skipped_steps) == ((), ("5",))


def test_a_workspace_that_never_came_to_be_is_not_shown() -> None:
    """An intent alone leaves nothing to look at; one that was opened stays where it is."""
    assert one(PLANNED).workspace.opening
    assert one(PLANNED, finished(Status.FAILED)).workspace.path is None
    opened = one(PLANNED, OPENED, finished(Status.FAILED))
    assert (opened.workspace.path, opened.workspace.opening) == ("/w/a", False)


def test_a_crash_does_not_lift_what_was_about_to_end_a_story() -> None:
    """Requeued without a result it still ends; a final result is lifted by the resume."""
    over = ev.LoopEnded(story_id=A, name="failed-wave", detail="2", hint="h")
    again = ev.StoryRequeued(story_id=A)
    cut_off = one(session(), ended(), over, again)
    assert (cut_off.ending and cut_off.ending.name, cut_off.progress.implemented) == ("failed-wave", False)
    resumed = one(session(), ended(), over, finished(Status.STOPPED), again)
    assert (resumed.ending, resumed.step_history.sessions, resumed.loop_sessions) == (None, 0, 0)


def test_starting_again_keeps_the_attempts_and_the_beginning() -> None:
    """A resume gives a story neither new attempts nor a new birthday."""
    start = ev.StoryStarted(story_id=A)
    first, after = one(start), one(start, FAILED, start)
    assert (after.progress.attempt, after.started_at) == (2, first.started_at)


def test_an_attempt_that_failed_leaves_nothing_that_counts() -> None:
    """Neither its session, its checks, nor a checkpoint that was planned."""
    worked = (session(), ended(), session(2, kind="verify"), ended(2), ev.CheckpointPlanned(story_id=A))
    before, after = one(*worked), one(*worked, FAILED)
    assert (
        before.progress.implemented,
        before.progress.verified,
        before.progress.checkpoint_planned_at is None,
    ) == (True, 1, False)
    assert (after.progress.implemented, after.progress.verified, after.progress.checkpoint_planned_at) == (
        False,
        0,
        None,
    )


def test_what_a_session_changed_is_counted_from_where_its_branch_was_first_found() -> None:
    """A workspace that is opened again after a crash does not move the beginning."""
    again = ev.WorkspaceOpened(story_id=A, branch="autopilot/a", path="/w/a", base="b2", head="h2")
    assert one(OPENED, again).workspace.head == "h"


def test_a_refusal_outlives_a_crash_but_not_a_result() -> None:
    """An agent that was refused is not asked again because the program was killed."""
    refused = ag.AgentRefused(story_id=A, agent="claude", reason="no key", hint="sign in")
    again = ev.StoryRequeued(story_id=A)
    assert one(refused, again).refusal == ("claude: no key", "sign in")
    assert one(refused, finished(Status.FAILED), again).refusal is None


def test_an_answer_counts_once_and_stays_on_record() -> None:
    """Acceptance 63: the first letter holds, and what was acted on is kept; a retry gives new attempts."""
    letters = [ev.DecisionAnswered(story_id=A, decision_id="d1", letter=letter, by="me") for letter in "AB"]
    after = one(session(), ended(), FAILED, asked("failed"), *letters, applied(retry=True))
    assert [(each.id, each.letter) for each in after.decided] == [("d1", "A")]
    assert (after.decision, after.progress.attempt) == (None, 1)
    assert one(session(), ended(), FAILED, asked("failed"), *letters, applied()).progress.attempt == 2


def test_every_spiral_is_counted() -> None:
    """Also the one after which nothing starts over."""
    first, second = (ev.SpiralSeen(story_id=A, reason="x", retries=retries) for retries in (True, False))
    assert one(first, second).spirals == 2


def test_work_that_was_lost_with_its_worker_before_it_was_committed_is_done_again() -> None:
    """A session whose checkpoint never came is repeated; one whose work is committed is not."""
    worked = (session(), ended(), ev.CheckpointPlanned(story_id=A))
    lost = StoryLost(story_id=A, worker="w", fence=1, reason="gone")
    placed = StoryPlaced(story_id=A, worker="v", instance="2", fence=2)
    for gone in ((lost, placed), (placed,)):  # a coordinator that was dead has not seen the loss
        again = one(*worked, *gone).progress
        assert (again.implemented, again.checkpoint_planned_at) == (False, None)
    kept = one(*worked, ev.Checkpointed(story_id=A, commit="c", commits=1), lost, placed).progress
    assert (kept.implemented, kept.checkpointed) == (True, True)
    failed = one(session(), ended(outcome=Outcome.FAILED), ev.CheckpointPlanned(story_id=A), lost).progress
    assert not failed.implemented

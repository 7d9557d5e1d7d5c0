"""What follows from the end of a session, as a pure function: which events are recorded along with it."""

from typing import Any

import pytest

from runner.agents.result import Result
from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.limits.agent_output import Fault, Final
from runner.core.limits.spiral import failure_digest
from runner.core.model import (
    DEFAULT_ATTEMPTS,
    Outcome,
    SessionKind,
    SessionRecord,
    Status,
    Step,
    StepHistory,
    StepProgress,
    Story,
    StoryId,
    StorySnapshot,
)
from runner.story.consequences import (
    EndFacts,
    consequences,
    failed_attempt,
    undone_change,
    verify_consequences,
)
from runner.story.session.session import SessionVerdict

STORY = Story(id=StoryId("a"), title="A", prompt="do a")
SESSION = SessionRecord(
    id="run/a/01",
    kind=SessionKind.WORK,
    step=Step(number="1", name="Do"),
    attempt=1,
    started_at=0.0,
    log="",
)


def ended(outcome: Outcome, **fields: Any) -> SessionVerdict:
    """Return a session that ended so."""
    given = {"exit_code": 0, "detail": "why", "output": "out", "last_line": "", **fields}
    return SessionVerdict(outcome=outcome, **given)


def facts(
    *,
    story: Story = STORY,
    spirals: int = 0,
    aborted: str = "",
    attempt: int = 1,
    failures: tuple[str, ...] = (),
) -> EndFacts:
    """Return what is known at the end of a session, by default the first."""
    snapshot = StorySnapshot(
        id=story.id,
        title=story.title,
        status=Status.RUNNING,
        sessions=(SESSION,),
        progress=StepProgress(attempt=attempt),
        step_history=StepHistory(failures=failures),
    )
    return EndFacts(
        story=story, now=snapshot, agent="x", cohort_spirals=spirals, aborted=aborted, at=100.0, chance=0.5
    )


def kinds(bodies: tuple[ev.Body, ...]) -> list[type]:
    """Return the kinds of events, in order."""
    return [type(body) for body in bodies]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.PARTIAL, Outcome.ASKS])
def test_work_is_committed_next(outcome: Outcome) -> None:
    """The commit is planned with the end of the session, so that a resume makes it."""
    assert kinds(consequences(ended(outcome), facts())) == [ev.CheckpointPlanned]


@pytest.mark.parametrize("outcome", [Outcome.STOPPED, Outcome.STALLED, Outcome.STUCK])
def test_an_end_that_the_pipeline_acts_upon_has_no_consequence_of_its_own(outcome: Outcome) -> None:
    """Nothing is committed, and no attempt has failed."""
    assert consequences(ended(outcome), facts()) == ()


def test_a_failed_session_is_a_failed_attempt() -> None:
    """The next session gets the reason and the output."""
    (failure,) = consequences(ended(Outcome.FAILED), facts())
    assert failure == ev.AttemptFailed(story_id=STORY.id, attempt=1, reason="session: why", output="out")


def test_a_failed_wave_ends_the_loop_and_keeps_the_work() -> None:
    """The work is committed, then the story stops."""
    result = Result(status="done", summary={"failed": 1})
    assert kinds(consequences(ended(Outcome.OK, result=result), facts())) == [
        ev.CheckpointPlanned,
        ev.LoopEnded,
    ]


def test_the_first_spiral_is_retried_and_the_second_ends_the_cohort() -> None:
    """A retried session's work is not committed."""
    spiral = ended(Outcome.OK, result=Result(summary={"spiral": 1}))
    assert kinds(consequences(spiral, facts())) == [ev.SpiralSeen]
    assert kinds(consequences(spiral, facts(spirals=1))) == [
        ev.CheckpointPlanned,
        ev.SpiralSeen,
        ev.LoopEnded,
        ev.AdmissionEnded,
    ]


def test_a_story_that_was_aborted_stops_only_where_more_sessions_would_follow() -> None:
    """A complete session may still become a result."""
    assert kinds(consequences(ended(Outcome.OK), facts(aborted="Ctrl-C"))) == [ev.CheckpointPlanned]
    assert kinds(consequences(ended(Outcome.PARTIAL), facts(aborted="Ctrl-C"))) == [
        ev.CheckpointPlanned,
        ev.LoopEnded,
    ]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(Fault.TRANSIENT, ag.AgentPaused), (Fault.LIMIT, ag.AgentPaused), (Fault.PERMANENT, ag.AgentRefused)],
)
def test_a_failure_of_the_service_is_not_a_failed_attempt(fault: Fault, kind: type) -> None:
    """The agent pauses, or the story is refused; the work did not fail."""
    said = Final(ok=False, message="busy", fault=fault)
    assert kinds(consequences(ended(Outcome.FAILED, said=said), facts())) == [kind]


def test_the_same_failure_again_and_again_is_a_spiral() -> None:
    """Not for a plain command, and not when no attempt is left."""
    same = (failure_digest("r", "o"),) * 2
    assert kinds(failed_attempt("r", "o", facts(failures=same))) == [ev.AttemptFailed, ev.SpiralSeen]
    plain = Story(id=STORY.id, title="A", prompt="", command=("true",))
    assert kinds(failed_attempt("r", "o", facts(story=plain, failures=same))) == [ev.AttemptFailed]
    last = facts(failures=same, attempt=DEFAULT_ATTEMPTS)
    assert kinds(failed_attempt("r", "o", last)) == [ev.AttemptFailed]


def test_only_a_failed_verify_command_has_a_consequence() -> None:
    """The failure names the command."""
    assert verify_consequences(ended(Outcome.OK), "make", facts()) == ()
    (failure,) = verify_consequences(ended(Outcome.FAILED), "make", facts())
    assert isinstance(failure, ev.AttemptFailed)
    assert (failure.reason, failure.output) == ("verify `make`: why", "$ make\nout")


def test_a_change_undone_and_made_again_is_a_spiral() -> None:
    """The trees of the step's commits show it."""
    assert undone_change(("t0", "t1", "t2"), facts()) == ()
    assert kinds(undone_change(("t0", "t1", "t0", "t1"), facts())) == [ev.SpiralSeen]

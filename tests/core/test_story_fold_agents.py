"""What a story remembers of its agent: conversations, pauses and refusals."""

import pytest

from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.model import Conversation, RunId, RunSnapshot, StoryId, StorySnapshot

RUN, A = RunId("r"), StoryId("a")


def run(*bodies: ev.Body) -> RunSnapshot:
    """Fold events, one a second."""
    begun = ev.RunStarted(
        base="0", isolation="worktree", enforcement="none", max_stories=1, options={}, stories=(PLAN,)
    )
    events = [ev.Event(run_id=RUN, at=float(at), body=body) for at, body in enumerate((begun, *bodies))]
    return fold(RUN, events)


PLAN = {"id": "a", "title": "A", "depends_on": []}


def after(*bodies: ev.Body) -> StorySnapshot:
    """Return the story after events of its own."""
    return run(ev.StoryStarted(story_id=A), *bodies).stories[A]


def started(conversation: str = "c", number: int = 1, kind: str = "work") -> ev.SessionStarted:
    """Begin a session."""
    return ev.SessionStarted(
        story_id=A,
        session_id=f"s{number}",
        kind=kind,
        step_number="1",
        step_name="Implement",
        attempt=1,
        agent="claude",
        log="",
        conversation=conversation,
    )


def ended(outcome: str, number: int = 1, *, zone: str = "") -> ev.SessionEnded:
    """End a session."""
    return ev.SessionEnded(story_id=A, session_id=f"s{number}", outcome=outcome, exit_code=0, zone=zone)


def paused(until: float, *, everyone: bool = False, fresh: bool = False) -> ag.AgentPaused:
    """Pause the agent."""
    return ag.AgentPaused(
        story_id=A, agent="claude", reason="busy", until=until, everyone=everyone, fresh=fresh
    )


def test_a_conversation_is_known_by_the_name_it_gave_itself() -> None:
    """A captured name replaces the chosen one, in the story and in the session's record."""
    seen = ag.ConversationSeen(story_id=A, session_id="s1", conversation="th-1")
    story = after(started(""), seen)
    assert story.step_history.conversation == Conversation(id="th-1", agent="claude")
    assert story.sessions[0].conversation == "th-1"


@pytest.mark.parametrize(
    ("bodies", "kept"),
    [
        ((ended("failed"), ev.AttemptFailed(story_id=A, attempt=1, reason="x", output="")), True),
        ((ended("asks"),), True),
        ((ended("ok"), started(number=2, conversation="", kind="verify")), True),
        ((ended("stuck"),), False),
        ((ended("stalled"),), False),
        ((ended("partial"),), True),
        ((ended("partial", zone="safe"),), True),
        ((ended("partial", zone="caution"),), False),
        ((ended("failed", zone="caution"),), True),
        ((ended("failed", zone="danger"),), False),
        ((ended("failed"), ev.SpiralSeen(story_id=A, reason="x", retries=True)), False),
        ((ended("failed"), paused(9.0)), True),
        ((ended("failed"), paused(9.0, fresh=True)), False),
        (
            (
                ended("ok"),
                ev.StepFinished(story_id=A, step_number="1", step_name="x", next_number="2", next_name="y"),
            ),
            False,
        ),
    ],
)
def test_what_helps_is_resumed_and_what_does_not_is_not(bodies: tuple[ev.Body, ...], *, kept: bool) -> None:
    """A retry and an answer resume it; a spiral, a stall, a stuck session and a new step start a new one.

    So does a full context; one that fills up is resumed unless the session ended for that.
    """
    assert (after(started(), *bodies).step_history.conversation is not None) is kept


def test_an_outage_costs_no_attempt_and_no_session() -> None:
    """Outages are counted in a row, from the first one on; a session that is served ends the row."""
    story = after(
        started(), ended("failed"), paused(9.0), started(number=2), ended("failed", 2), paused(20.0)
    )
    assert (
        story.progress.attempt,
        story.step_history.sessions,
        story.outage.count,
        story.outage.resume_at,
    ) == (1, 0, 2, 20.0)
    assert story.outage.since == 4.0
    assert "until" in story.last_line
    served = after(started(), ended("failed"), paused(9.0), started(number=2), ended("ok", 2))
    assert (served.outage.count, served.outage.since) == (0, None)


def test_a_limit_is_the_runs_and_never_shortened() -> None:
    """Only a pause for everyone holds others back."""
    assert run(paused(50.0)).pauses == {}
    assert run(paused(50.0, everyone=True), paused(20.0, everyone=True)).pauses == {"claude": 50.0}


def test_a_refusal_ends_the_story_until_a_person_resumes_it() -> None:
    """It is remembered with what to do, and lifted with the result."""
    refused = ag.AgentRefused(story_id=A, agent="claude", reason="bad key", hint="sign in")
    assert after(refused).refusal == ("claude: bad key", "sign in")
    failed = ev.StoryFinished(story_id=A, verdict="failed", reason="claude: bad key")
    assert after(refused, failed, ev.RunResumed(requeued=("a",))).refusal is None

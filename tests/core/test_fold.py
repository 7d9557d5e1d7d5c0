"""The fold: one state from the events, whichever way the stories' events interleave."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.events import events as ev
from runner.core.events.fold import apply, exit_code, fold
from runner.core.events.story_json import to_json
from runner.core.model import KillSwitch, Outcome, RunId, RunSnapshot, Status, StoryId, StorySnapshot, Tier
from tests.core.test_graph import story
from tests.records.sample_runs import mixed_events
from tests.report.report_runs import sample_report

RUN = RunId("run-1")
A, B = StoryId("a"), StoryId("b")
STARTED = ev.RunStarted(
    base="base0",
    isolation="worktree",
    enforcement="none",
    max_stories=3,
    options={"verify": ["make"]},
    stories=(to_json(story("a")), to_json(story("b", "a"))),
)


def event(body: ev.Body, at: float = 1.0) -> ev.Event:
    return ev.Event(run_id=RUN, at=at, body=body)


def folded(*bodies: ev.Body) -> RunSnapshot:
    """Fold a started run and then these, one second apart."""
    return fold(RUN, [event(body, at=float(at)) for at, body in enumerate((STARTED, *bodies), start=10)])


def one(*bodies: ev.Body) -> StorySnapshot:
    return folded(*bodies).stories[A]


def session(number: int = 1, kind: str = "work", story_id: StoryId = A) -> ev.SessionStarted:
    return ev.SessionStarted(
        story_id=story_id,
        session_id=f"s{number}",
        kind=kind,
        step_number="1",
        step_name="Implement",
        attempt=1,
        agent="claude",
        log="x.log",
        agents_per_wave=4,
    )


def ended(number: int = 1, outcome: Outcome = Outcome.OK, **more: Any) -> ev.SessionEnded:
    return ev.SessionEnded(story_id=A, session_id=f"s{number}", outcome=outcome, exit_code=0, **more)


def finished(verdict: Status, **more: Any) -> ev.StoryFinished:
    return ev.StoryFinished(story_id=A, verdict=verdict, reason="because", **more)


def life_of(name: StoryId, outcome: str, verdict: str) -> list[ev.Body]:
    """Return one story's life in the order in which the journal would have it."""
    at: dict[str, Any] = {"story_id": name}
    return [
        ev.StoryQueued(**at),
        ev.StoryStarted(**at),
        ev.WorkspacePlanned(**at, branch=f"autopilot/{name}", path=f"/w/{name}"),
        ev.WorkspaceOpened(**at, branch=f"autopilot/{name}", path=f"/w/{name}", base="b", head="h"),
        session(story_id=name),
        ev.OutputSeen(**at, line="working"),
        ev.SessionEnded(**at, session_id="s1", outcome=outcome, exit_code=0, input_tokens=5),
        ev.CheckpointPlanned(**at),
        ev.Checkpointed(**at, commit="c1", commits=1),
        ev.StoryFinished(**at, verdict=verdict, reason="r", commit="c1", commits=1),
        ev.WorkspaceClosed(**at, removed=verdict == "done", reason="r"),
    ]


@given(
    st.lists(st.sampled_from(Outcome), min_size=3, max_size=3),
    st.lists(st.sampled_from(["done", "failed", "parked"]), min_size=3, max_size=3),
    st.randoms(use_true_random=False),
)
def test_events_of_different_stories_commute(
    outcomes: list[str], verdicts: list[str], chance: random.Random
) -> None:
    """However three stories interleave, the same state comes out."""
    names = [StoryId(name) for name in "abc"]
    started = ev.RunStarted(
        base="base0",
        isolation="worktree",
        enforcement="none",
        max_stories=3,
        options={},
        stories=tuple(to_json(story(name)) for name in names),
    )
    lives = [life_of(*row) for row in zip(names, outcomes, verdicts, strict=True)]
    in_turn = [event(body) for life in lives for body in life]
    mixed = [event(body) for body in _interleave(lives, chance)]
    start = event(started, at=0.5)
    assert fold(RUN, [start, *mixed]) == fold(RUN, [start, *in_turn])


def _interleave(lives: Sequence[list[ev.Body]], chance: random.Random) -> list[ev.Body]:
    turns = list(itertools.chain.from_iterable([index] * len(life) for index, life in enumerate(lives)))
    chance.shuffle(turns)
    rest = [iter(life) for life in lives]
    return [next(rest[index]) for index in turns]


def test_a_run_begins_with_its_stories_waiting_or_queued() -> None:
    """Acceptance 21: who depends on another waits; the rest is queued, in start order."""
    run = folded()
    assert [(item.id, item.status) for item in run.stories.values()] == [
        ("a", Status.QUEUED),
        ("b", Status.WAITING),
    ]
    assert (run.started_at, run.base, run.window, run.max_stories) == (10.0, "base0", 3, 3)
    assert run.options == {"verify": ["make"]}
    assert not run.ended


def test_a_story_passes_through_its_life() -> None:
    """Acceptance 68: branch, workspace, sessions, commit and result are all in the snapshot."""
    done = one(*life_of(A, "ok", "done"))
    assert (
        done.status,
        done.workspace.branch,
        done.workspace.base,
        done.workspace.commit,
        done.workspace.commits,
    ) == (
        Status.DONE,
        "autopilot/a",
        "b",
        "c1",
        1,
    )
    assert done.workspace.path is None
    assert (done.started_at, done.ended_at, done.progress.attempt) == (12.0, 20.0, 1)
    assert [(item.outcome, item.agents_per_wave, item.ended_at) for item in done.sessions] == [
        (Outcome.OK, 4, 17.0)
    ]
    assert done.usage.tokens == 5


def test_a_kept_worktree_stays_in_the_snapshot() -> None:
    """Acceptance 13: the report can say where the work is."""
    assert one(*life_of(A, "failed", "failed")).workspace.path == "/w/a"


def test_a_planned_workspace_that_never_opened_is_opening() -> None:
    """Acceptance 68: a resume sees that the act was begun and not ended."""
    planned = ev.WorkspacePlanned(story_id=A, branch="autopilot/a", path="/w/a")
    opened = ev.WorkspaceOpened(story_id=A, branch="autopilot/a", path="/w/a", base="b", head="h")
    assert one(planned).workspace.opening
    assert not one(planned, opened).workspace.opening


def test_the_first_base_of_a_story_stays() -> None:
    """A workspace that is opened again on resume does not move what the story is compared with."""
    first = ev.WorkspaceOpened(story_id=A, branch="x", path="/w", base="b1", head="h")
    second = ev.WorkspaceOpened(story_id=A, branch="x", path="/w", base="b2", head="h")
    assert one(first, second).workspace.base == "b1"


@pytest.mark.parametrize(
    ("kind", "outcome", "implemented", "verified", "used"),
    [
        ("work", Outcome.OK, True, 0, 1),
        ("work", Outcome.FAILED, False, 0, 1),
        ("verify", Outcome.OK, False, 1, 0),
        ("verify", Outcome.FAILED, False, 0, 0),
    ],
)
def test_what_a_session_proves(
    kind: str,
    outcome: Outcome,
    implemented: bool,  # noqa: FBT001  a table
    verified: int,
    used: int,
) -> None:
    """Only a work session that ended well implements; only verify commands that pass verify."""
    now = one(session(kind=kind), ended(outcome=outcome))
    assert (now.progress.implemented, now.progress.verified, now.step_history.sessions) == (
        implemented,
        verified,
        used,
    )


def test_a_session_end_touches_only_its_own_session() -> None:
    """Usage and outcome belong to the session that they name."""
    now = one(session(1), ended(1, input_tokens=1), session(2), ended(2, Outcome.STOPPED, output_tokens=2))
    assert [item.outcome for item in now.sessions] == [Outcome.OK, Outcome.STOPPED]
    assert (now.usage.input_tokens, now.usage.output_tokens) == (1, 2)


def test_a_new_work_session_is_not_yet_committed() -> None:
    """The checkpoint of the session before says nothing about the next one's changes."""
    checkpointed = ev.Checkpointed(story_id=A, commit="c1", commits=1)
    assert one(session(1), ended(1), checkpointed, session(2, "verify")).progress.checkpointed
    assert not one(session(1), ended(1), checkpointed, session(2, "work")).progress.checkpointed


def test_the_last_line_is_shown_until_the_next_session() -> None:
    """A session's last words stay readable after its end."""
    seen = ev.OutputSeen(story_id=A, line="hello")
    assert one(session(), seen).last_line == "hello"
    assert one(session(), seen, ended()).last_line == "hello"
    assert one(session(), seen, ended(last_line="bye")).last_line == "bye"
    assert one(session(), seen, ended(), session(2)).last_line == ""


def test_a_failed_attempt_starts_the_next_one_afresh() -> None:
    """Acceptance 51: the attempt rises, the work is to be done again, the output is kept."""
    checkpointed = ev.Checkpointed(story_id=A, commit="c1", commits=1)
    failed = ev.AttemptFailed(story_id=A, attempt=1, reason="tests failed", output="boom")
    now = one(ev.StoryStarted(story_id=A), session(), ended(), checkpointed, failed)
    assert (
        now.progress.attempt,
        now.progress.implemented,
        now.progress.checkpointed,
        now.progress.verified,
    ) == (2, False, False, 0)
    assert (now.step_history.last_failure, now.reason, now.retry_count, now.workspace.commit) == (
        "boom",
        "tests failed",
        1,
        "c1",
    )


def test_an_intended_checkpoint_is_open_until_it_is_done() -> None:
    """Acceptance 68: a resume knows the commit's time, and that it may not have happened."""
    planned = ev.CheckpointPlanned(story_id=A)
    assert one(planned).progress.checkpoint_planned_at == 11.0
    assert (
        one(planned, ev.Checkpointed(story_id=A, commit="c", commits=1)).progress.checkpoint_planned_at
        is None
    )


def test_a_result_carries_its_kill_switch_and_its_blockers() -> None:
    """Acceptance 22: because of whom, and by which switch, is kept."""
    switch = {"name": "spiral", "detail": "d", "hint": "h"}
    now = one(finished(Status.SKIPPED, kill_switch=switch, blocked_by=("x",), next="resume"))
    assert now.kill_switch == KillSwitch(name="spiral", detail="d", hint="h")
    assert (now.blocked_by, now.next, now.reason, now.status) == (("x",), "resume", "because", Status.SKIPPED)


def test_a_result_without_a_commit_keeps_the_last_checkpoint() -> None:
    """What was committed stays known though the story failed."""
    now = one(ev.Checkpointed(story_id=A, commit="c1", commits=2), finished(Status.FAILED))
    assert (now.workspace.commit, now.workspace.commits) == ("c1", 2)


def test_resuming_requeues_only_what_is_named() -> None:
    """Acceptance 68: finished stays finished; the named stories continue."""
    stop = ev.StoryFinished(story_id=B, verdict=Status.STOPPED, reason="stopped", next="resume")
    before = folded(finished(Status.DONE), stop, ev.RunEnded(exit_code=2))
    after = apply(before, event(ev.RunResumed(requeued=("b",)), at=99))
    assert after.stories[A] == before.stories[A]
    assert (after.stories[B].status, after.stories[B].reason, after.stories[B].ended_at) == (
        Status.WAITING,
        "",
        None,
    )
    assert (after.ended_at, after.exit_code) == (None, None)


@pytest.mark.parametrize(
    ("verdict", "attempt", "implemented"), [(Status.FAILED, 1, False), (Status.STOPPED, 1, True)]
)
def test_a_failed_story_gets_new_attempts_and_a_stopped_one_keeps_its_place(
    verdict: Status,
    attempt: int,
    implemented: bool,  # noqa: FBT001  a table
) -> None:
    """Acceptance 52: retrying sets the count back; an interruption costs nothing."""
    bodies = (ev.StoryStarted(story_id=A), session(), ended(), finished(verdict))
    now = one(*bodies, ev.RunResumed(requeued=("a",)))
    assert (now.status, now.progress.attempt, now.progress.implemented) == (
        Status.QUEUED,
        attempt,
        implemented,
    )
    assert now.step_history.sessions == 0


def test_work_that_was_never_judged_is_not_repeated_by_a_retry() -> None:
    """A story whose workspace could not be opened failed for that; the session before it had succeeded."""
    planned = ev.WorkspacePlanned(story_id=A, branch="autopilot/a", path="/w/a")
    opened = ev.WorkspaceOpened(story_id=A, branch="autopilot/a", path="/w/a", base="base0", head="base0")
    done = (planned, ev.StoryStarted(story_id=A), opened, session(), ended())
    again = (finished(Status.FAILED), ev.RunResumed(requeued=("a",)))
    refused, judged = one(*done, planned, *again), one(*done, planned, opened, *again)
    assert (refused.progress.implemented, refused.progress.attempt) == (True, 1)
    assert (judged.progress.implemented, judged.progress.attempt) == (False, 1)
    gone = ev.WorkspaceClosed(story_id=A, removed=True, reason="its folder is gone")
    lost = one(*done, planned, again[0], gone, again[1])
    assert not lost.progress.implemented, "what was not committed is gone, so it is made once more"


def test_the_first_reason_to_end_admission_stays() -> None:
    """Acceptance 31: exactly one kill-switch is recorded for a run."""
    first = ev.AdmissionEnded(name="user-abort", detail="d", hint="h")
    second = ev.AdmissionEnded(name="max-hours-exceeded", detail="d", hint="h")
    run = folded(first, second)
    assert run.kill_switch is not None
    assert run.kill_switch.name == "user-abort"
    assert apply(run, event(ev.RunResumed())).kill_switch is None


def test_window_notes_and_end_are_the_runs_own() -> None:
    """Events without a story change the run and no story."""
    quiet = folded()
    run = folded(
        ev.WindowChanged(window=1, tier="critical", reason="1.0 GB free"),
        ev.Noted(message="look", story_id=A),
        ev.RunEnded(exit_code=4),
    )
    assert (run.window, run.tier, run.tier_reason) == (1, Tier.CRITICAL, "1.0 GB free")
    assert [(note.at, note.story_id, note.message) for note in run.notes] == [(12.0, "a", "look")]
    assert (run.ended, run.exit_code) == (True, 4)
    assert run.stories == quiet.stories


def test_an_event_of_a_story_outside_the_run_changes_nothing() -> None:
    """A stray event cannot invent a story."""
    assert folded(ev.StoryStarted(story_id=StoryId("stranger"))) == folded()


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 0),
        ([Status.DONE, Status.DONE], 0),
        ([Status.DONE, Status.NO_WORK], 4),
        ([Status.NO_WORK, Status.PARKED], 5),
        ([Status.NO_WORK], 3),
        ([Status.FAILED], 3),
        ([Status.FAILED, Status.SKIPPED], 3),
        ([Status.DONE, Status.FAILED], 4),
        ([Status.DONE, Status.FAILED, Status.PARKED], 4),
        ([Status.DONE, Status.PARKED], 5),
        ([Status.PARKED], 5),
        ([Status.DONE, Status.STOPPED], 2),
    ],
)
def test_the_exit_code_follows_the_verdicts(statuses: list[Status], code: int) -> None:
    """Acceptance 8: the documented exit code for each way to end."""
    stories = {
        StoryId(f"s{number}"): StorySnapshot(id=StoryId(f"s{number}"), title="", status=status)
        for number, status in enumerate(statuses)
    }
    assert exit_code(RunSnapshot(run_id=RUN, started_at=0.0, stories=stories)) == code


@pytest.mark.parametrize(
    ("others", "code"), [([], 0), ([Status.DONE], 0), ([Status.FAILED], 4), ([Status.NO_WORK], 4)]
)
def test_no_change_is_a_success_where_the_story_says_so(others: list[Status], code: int) -> None:
    """It counts like a story that is done."""
    fine = StorySnapshot(id=StoryId("fine"), title="", status=Status.NO_WORK, allow_no_change=True)
    stories = {
        StoryId(f"s{number}"): StorySnapshot(id=StoryId(f"s{number}"), title="", status=status)
        for number, status in enumerate(others)
    }
    snapshot = RunSnapshot(run_id=RUN, started_at=0.0, stories={fine.id: fine, **stories})
    assert exit_code(snapshot) == code


def test_a_run_that_a_kill_switch_ended_is_a_system_error() -> None:
    """Acceptance 8: exit 2, even when all that ran was done."""
    run = folded(finished(Status.DONE), ev.AdmissionEnded(name="user-abort", detail="d", hint="h"))
    assert exit_code(run) == 2


def test_a_run_counts_its_stories_and_adds_up_their_usage() -> None:
    """What is unknown stays unknown, which is not zero."""
    run = folded(session(), ended(input_tokens=3, cost_usd=0.5), finished(Status.DONE))
    assert (run.count(Status.DONE), run.count(Status.WAITING), run.count(Status.FAILED)) == (1, 1, 0)
    assert (run.usage.tokens, run.usage.cost_usd, run.usage.output_tokens) == (3, 0.5, None)
    assert folded().usage.tokens is None


def test_folding_at_once_is_folding_one_by_one() -> None:
    """The quick way over a whole journal gives what the live one gives, after every event."""
    events = [*mixed_events(), *sample_report(12).events]
    for number in range(len(events) + 1):
        one_by_one = RunSnapshot(run_id=RUN, started_at=0.0)
        for event in events[:number]:
            one_by_one = apply(one_by_one, event)
        assert fold(RUN, events[:number]) == one_by_one

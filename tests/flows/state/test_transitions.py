"""The protocol: retries, failures, boundaries, decisions, corrections, rollback and cycles."""

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from runner.flows.state.errors import StateError
from runner.flows.state.model import (
    AWAITING,
    IDLE,
    CompletedRow,
    Dialect,
    LastSession,
    Phase,
    Position,
    RetryRow,
    StateFile,
    StepRef,
    StepStatus,
)
from runner.flows.state.reading import parse_state
from runner.flows.state.transitions import (
    Overflow,
    Transition,
    begin_step,
    boundary,
    change_flow,
    complete_step,
    correct,
    enter_again,
    fail_attempt,
    finish,
    mark_skipped,
    record_decision,
    retry_by_user,
    roll_back,
    skip_by_user,
)
from runner.flows.state.writing import render
from tests.flows.state.samples import AT, states, text_of

PLAN = parse_state(text_of("rich-plan"))
POINTER = parse_state(text_of("pointer-plan"))
AUTODEV = parse_state(text_of("autodev-implement"))
ALL = pytest.mark.parametrize("state", [PLAN, POINTER, AUTODEV], ids=lambda state: state.dialect.value)
NEXT = StepRef(step="3", name="Decompose")


def written(change: Transition) -> StateFile:
    """Write the new state and read it again: every transition must survive that."""
    again = parse_state(render(change.state))
    assert again == change.state
    return again


@ALL
@pytest.mark.parametrize("attempts", [1, 2, 6])
def test_a_file_is_valid_whatever_the_number_of_attempts(state: StateFile, attempts: int) -> None:
    """The counter stays within its protocol, and only the last attempt makes the step a failed one."""
    for number in range(1, attempts + 1):
        assert state.status is not StepStatus.FAILED
        change = fail_attempt(state, reason="no", at=AT, attempt=number, attempts=attempts)
        state = written(change)
        assert state.retry_count == (3 if number == attempts else min(number, 3))
    assert state.needs_decision


@ALL
def test_acceptance_51_one_run_and_three_retries_then_failed(state: StateFile) -> None:
    """The counter rises with each retry; the fourth failure is final, with retry_count 3 and a blocker."""
    rows: list[RetryRow] = []
    blockers: list[str] = []
    for number in range(1, 4):
        change = fail_attempt(state, reason=f"no {number}\nat all", at=AT)
        state = written(change)
        rows += change.overflow.retries
        assert (state.status, state.retry_count) == (StepStatus.IN_PROGRESS, number)
        assert not change.overflow.blockers
        assert state.blockers == ()
    change = fail_attempt(state, reason="no 4", at=AT)
    state = written(change)
    rows += change.overflow.retries
    blockers += change.overflow.blockers
    assert (state.status, state.retry_count, state.needs_decision) == (StepStatus.FAILED, 3, True)
    if state.dialect is Dialect.RICH:
        assert not rows
        rows, blockers = list(state.retry_log), list(state.blockers)
    assert [(row.attempt, row.reason) for row in rows] == [
        (str(n), f"no {n}" + (" at all" if n < 4 else "")) for n in range(1, 5)
    ]
    assert rows[0].timestamp == "2026-04-23T03:06:32+00:00"
    assert rows[0].sub_step == str(state.sub_step)
    (blocker,) = blockers
    assert blocker.startswith(
        f"{state.name} (step {state.step}) failed 4 consecutive times at sub-step {state.sub_step}. "
    )
    assert blocker.endswith("Last failure: no 4. Automatic retries are used up.")
    with pytest.raises(StateError, match="waits for a decision"):
        begin_step(state, StepRef(step=state.step, name=state.name))


def test_a_failure_is_noted_once_and_without_a_sub_step_too() -> None:
    """The same blocker is not listed twice; an unknown sub-step is left out of it."""
    failed = replace(PLAN, retry_count=3, sub_step=None)
    once = fail_attempt(failed, reason="no", at=AT).state
    (blocker,) = once.blockers
    assert blocker == (
        "Plan (step 2) failed 4 consecutive times at an unknown sub-step. "
        "Last failure: no. Automatic retries are used up."
    )
    assert fail_attempt(once, reason="no", at=AT).state.blockers == once.blockers
    assert retry_by_user(once).state.blockers == ()
    idle = fail_attempt(replace(failed, sub_step=IDLE), reason="no", at=AT).state
    assert "4 consecutive times before its first sub-step." in idle.blockers[0]


def test_retry_by_a_person_starts_anew() -> None:
    """Counter 0, in progress, the step's blocker and log gone, other blockers kept."""
    failed = parse_state(text_of("rich-failed"))
    other = replace(failed, blockers=(*failed.blockers, "the licence is missing"))
    state = written(retry_by_user(other))
    assert (state.status, state.retry_count, state.retry_log) == (StepStatus.IN_PROGRESS, 0, ())
    assert state.blockers == ("the licence is missing",)
    assert state.sub_step == failed.sub_step


def test_skip_by_a_person_stands_before_the_next_step() -> None:
    """The skipped step is on record, its blocker gone; without a next step the file says skipped."""
    failed = parse_state(text_of("rich-failed"))
    state = written(skip_by_user(failed, StepRef(step="2c", name="Decompose Tests"), at=AT, reason="no time"))
    assert (state.step, state.status, state.sub_step, state.retry_count) == (
        "2c",
        StepStatus.NOT_STARTED,
        IDLE,
        0,
    )
    assert state.completed[-1] == CompletedRow(
        step="2b", name="Blackbox Test Spec", completed="2026-04-23", outcome="skipped by the user: no time"
    )
    assert (state.blockers, state.retry_log) == ((), ())
    assert state.skipped_steps == ("2b",)
    change = skip_by_user(parse_state(text_of("autodev-failed")), None, at=AT)
    assert (written(change).status, change.state.retry_count) == (StepStatus.SKIPPED, 0)
    assert change.overflow.completed[0].outcome == "skipped by the user"


@ALL
def test_a_skip_holds_until_the_step_runs_again(state: StateFile) -> None:
    """It outlives every move, also one that was written by hand, and ends with the step's own work."""
    here, after = StepRef(step=state.step, name=state.name), StepRef(step="5", name="Run Tests")
    skipped = written(skip_by_user(state, after, at=AT))
    assert skipped.skipped_steps == (state.step,)
    light = state.dialect is not Dialect.RICH
    assert skipped.skipped == ((f"{state.step} — {state.name} (2026-04-23)",) if light else ())
    assert (f"\n## Skipped Steps\n- {state.step} — " in render(skipped)) == light
    again = written(skip_by_user(replace(skipped, step=state.step, name=state.name), None, at=AT))
    assert again.skipped == skipped.skipped, "once is enough"
    by_hand = replace(state, status=StepStatus.SKIPPED)
    assert by_hand.skipped_steps == (state.step,)
    assert written(begin_step(by_hand, after)).skipped_steps == (state.step,)
    assert written(correct(by_hand, after, StepStatus.NOT_STARTED)).skipped_steps == (state.step,)
    assert written(begin_step(skipped, here)).skipped_steps == ()
    back = replace(skipped, step=state.step, name=state.name, status=StepStatus.IN_PROGRESS)
    assert written(complete_step(back, at=AT)).skipped_steps == ()
    later = written(mark_skipped(skipped, StepRef(step="6", name="Deploy"), at=AT))
    assert (later.step, later.skipped_steps) == ("5", (state.step, "6"))
    assert written(roll_back(later, here, later=("5", "6"))).skipped_steps == ()


def test_a_new_cycle_asks_for_skipped_steps_again() -> None:
    """Steps of the loop are not skipped for good; what came before the loop is."""
    early, late = StepRef(step="4", name="Testability Revision"), StepRef(step="14", name="Security Audit")
    state = mark_skipped(mark_skipped(AUTODEV, early, at=AT).state, late, at=AT).state
    assert written(enter_again(state, StepRef(step="9", name="New Task"))).skipped_steps == ("4",)
    assert change_flow(state, "greenfield", NEXT, StepStatus.NOT_STARTED).state.skipped == ()
    early, late = StepRef(step="2c", name="Decompose Tests"), StepRef(step="2hb", name="Security Audit")
    rich = mark_skipped(mark_skipped(PLAN, early, at=AT).state, late, at=AT).state
    after = written(enter_again(rich, StepRef(step="2f", name="New Task")))
    assert after.skipped_steps == ("2c",)
    assert after.completed[-1].outcome == "in an earlier cycle: skipped by the user"


def test_acceptance_53_success_after_two_retries_resets_and_clears() -> None:
    """retry_count 0; the Retry Log of that step is empty, another step's rows stay."""
    state = PLAN
    for reason in ("first", "second"):
        state = fail_attempt(state, reason=reason, at=AT).state
    old = RetryRow(attempt="1", step="1", name="Research", sub_step="", reason="x", timestamp="y")
    state = replace(state, retry_log=(old, *state.retry_log))
    assert (state.retry_count, len(state.retry_log)) == (2, 3)
    done = written(complete_step(state, at=AT, outcome="12 components"))
    assert (done.status, done.retry_count, done.retry_log) == (StepStatus.COMPLETED, 0, (old,))
    assert done.completed[-1] == CompletedRow(
        step="2", name="Plan", completed="2026-04-23", outcome="12 components"
    )
    again = complete_step(done, at=AT, outcome="better").state
    assert [row.step for row in again.completed] == ["0", "1", "2"]
    assert again.completed[-1].outcome == "better"


def test_completing_elsewhere_hands_the_row_to_the_journal() -> None:
    """What the lighter dialects cannot hold comes back."""
    change = complete_step(replace(POINTER, retry_count=2), at=AT, outcome="ok")
    assert (change.state.retry_count, change.state.status) == (0, StepStatus.COMPLETED)
    assert change.overflow.completed[0].outcome == "ok"
    assert change.overflow
    assert not Overflow()


def test_acceptance_55_a_boundary_stops_before_the_next_step() -> None:
    """Decompose is completed, Implement not started, and the rich file says why the session ended."""
    state = replace(PLAN, step="3", name="Decompose", retry_count=1)
    change = boundary(state, StepRef(step="4", name="Implement"), at=AT, outcome="9 tasks")
    after = written(change)
    assert (after.step, after.name, after.status) == ("4", "Implement", StepStatus.NOT_STARTED)
    assert (after.retry_count, after.sub_step) == (0, IDLE)
    assert after.completed[-1] == CompletedRow(
        step="3", name="Decompose", completed="2026-04-23", outcome="9 tasks"
    )
    assert after.last_session == LastSession(
        date="2026-04-23",
        ended_at="Step 3 Decompose — SubStep 4 — Architecture Review & Risk Assessment",
        reason="session boundary",
        notes="Decompose complete, implementation ready",
    )
    assert not change.overflow


def test_acceptance_55_rows_without_a_boundary_chain() -> None:
    """Beginning the next step after a completed one puts it straight in progress."""
    done = complete_step(AUTODEV, at=AT).state
    state = written(begin_step(done, StepRef(step="11", name="Run Tests")))
    assert (state.step, state.status, state.sub_step, state.retry_count) == (
        "11",
        StepStatus.IN_PROGRESS,
        AWAITING,
        0,
    )


def test_acceptance_57_an_autodev_boundary_resets_the_sub_step_and_keeps_the_cycle() -> None:
    """Phase 0, awaiting-invocation, empty detail, retry 0; the cycle does not rise."""
    change = boundary(
        replace(AUTODEV, retry_count=2), StepRef(step="11", name="Run Tests"), at=AT, notes="done\nfor today"
    )
    state = written(change)
    assert state.sub_step == Phase(phase=0, name="awaiting-invocation", detail="")
    assert (state.retry_count, state.cycle, state.status) == (0, 3, StepStatus.NOT_STARTED)
    assert '  phase: 0\n  name: awaiting-invocation\n  detail: ""\nretry_count: 0\ncycle: 3\n' in render(
        state
    )
    assert change.overflow.last_session is not None
    assert change.overflow.last_session.notes == "done for today"
    assert change.overflow.completed[0].step == "10"


def test_acceptance_57_only_the_re_entry_loop_raises_the_cycle() -> None:
    """Existing-code goes round again; the other flows have one cycle; older dialects do not count."""
    to = StepRef(step="9", name="New Task")
    done = finish(AUTODEV).state
    assert done.done
    state = written(enter_again(done, to))
    assert (state.cycle, state.step, state.status, state.sub_step) == (
        4,
        "9",
        StepStatus.NOT_STARTED,
        AWAITING,
    )
    with pytest.raises(StateError, match="no second cycle"):
        enter_again(parse_state(text_of("autodev-plan")), to)
    with pytest.raises(StateError, match="no second cycle"):
        enter_again(POINTER, to)
    assert written(enter_again(parse_state(text_of("pointer-failed")), to)).cycle is None
    assert written(enter_again(PLAN, StepRef(step="2f", name="New Task"))).step == "2f"


def test_a_completed_step_is_not_completed_again_at_its_boundary() -> None:
    """Its row stays as it was; an idle sub-step is not told."""
    done = complete_step(replace(PLAN, sub_step=Position(text="")), at=AT, outcome="ok").state
    change = boundary(done, NEXT, at=AT, outcome="not this")
    assert change.state.completed[-1].outcome == "ok"
    assert change.state.last_session is not None
    assert change.state.last_session.ended_at == "Step 2 Plan"
    assert change.state.sub_step == Position(text="")


@ALL
def test_beginning_keeps_the_place_within_a_step(state: StateFile) -> None:
    """Going on with a step keeps its sub-step and its counter."""
    paused = replace(state, status=StepStatus.NOT_STARTED, retry_count=2)
    begun = written(begin_step(paused, StepRef(step=state.step, name=state.name)))
    assert (begun.status, begun.sub_step, begun.retry_count) == (StepStatus.IN_PROGRESS, state.sub_step, 2)


@ALL
def test_the_end_of_a_flow(state: StateFile) -> None:
    """Done is a step of its own."""
    done = written(finish(state))
    assert (done.step, done.name, done.status, done.done) == ("done", "Done", StepStatus.COMPLETED, True)


@ALL
def test_corrections_follow_the_folders(state: StateFile) -> None:
    """Another step starts afresh; the same step keeps its sub-step, and its retries unless it is over."""
    failed = replace(state, retry_count=3, status=StepStatus.FAILED)
    moved = written(correct(failed, StepRef(step="5", name="Run Tests"), StepStatus.NOT_STARTED))
    assert (moved.step, moved.status, moved.retry_count) == ("5", StepStatus.NOT_STARTED, 0)
    here = StepRef(step=state.step, name=state.name)
    over = written(correct(failed, here, StepStatus.COMPLETED))
    assert (over.status, over.retry_count, over.sub_step) == (StepStatus.COMPLETED, 0, state.sub_step)
    assert written(correct(failed, here, StepStatus.IN_PROGRESS)).retry_count == 3


def test_decisions_are_recorded_once() -> None:
    """In rich in their section, elsewhere for the journal; a repeated one changes nothing."""
    once = record_decision(PLAN, "Use  Postgres\nonly")
    assert written(once).decisions[-1] == "Use Postgres only"
    assert record_decision(once.state, "Use Postgres only").state == once.state
    assert record_decision(AUTODEV, "Use Postgres").overflow.decisions == ("Use Postgres",)
    assert record_decision(AUTODEV, "Use Postgres").state == AUTODEV


def test_rolling_back_reopens_a_step() -> None:
    """The step is in progress, its row gone, other rows kept, and the failed step's blocker gone too."""
    failed = fail_attempt(replace(PLAN, retry_count=3), reason="no", at=AT).state
    state = written(roll_back(failed, StepRef(step="1", name="Research")))
    assert (state.step, state.status, state.sub_step, state.retry_count) == (
        "1",
        StepStatus.IN_PROGRESS,
        IDLE,
        0,
    )
    assert [row.step for row in state.completed] == ["0"]
    assert (state.blockers, state.retry_log) == ((), ())


@given(states())
@settings(max_examples=80, deadline=None)
def test_every_transition_of_every_state_can_be_written(state: StateFile) -> None:
    """No order of events leads to a state that cannot be stored."""
    to = StepRef(step="2", name="Plan")
    changes = [
        complete_step(state, at=AT, outcome="a | b"),
        boundary(state, to, at=AT),
        fail_attempt(state, reason="x", at=AT),
        retry_by_user(state),
        skip_by_user(state, to, at=AT),
        finish(state),
        correct(state, to, StepStatus.IN_PROGRESS),
        record_decision(state, "d"),
        roll_back(state, to),
    ]
    for change in changes:
        written(change)

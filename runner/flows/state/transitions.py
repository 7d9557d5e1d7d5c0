"""The transitions of a story's position, as pure functions from a state to the next state.

Nothing is written here and no clock is read. What a dialect has no section for is not dropped: it is
returned as `overflow`, for the journal. A step runs once and is retried three times; after that only the
user can move it.
"""

from collections.abc import Collection
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from runner.core.choose import activity
from runner.core.flow import EndReason, number_key
from runner.core.model import DEFAULT_ATTEMPTS, MAX_RETRIES
from runner.core.text.names import one_line
from runner.core.text.words import count
from runner.flows.state.errors import StateError
from runner.flows.state.model import (
    AWAITING,
    DONE,
    IDLE,
    SKIPPED_OUTCOME,
    CompletedRow,
    Dialect,
    LastSession,
    Position,
    RetryRow,
    StateFile,
    StepRef,
    StepStatus,
    SubStep,
    is_skipped,
    skipped_number,
)
from runner.flows.state.vocabulary import EXISTING_CODE


class Overflow(Struct, frozen=True, kw_only=True):
    """What the dialect could not store; the journal keeps it."""

    completed: tuple[CompletedRow, ...] = ()
    decisions: tuple[str, ...] = ()
    retries: tuple[RetryRow, ...] = ()
    blockers: tuple[str, ...] = ()
    last_session: LastSession | None = None

    def __bool__(self) -> bool:
        return self != Overflow()


NOTHING = Overflow()


class Transition(Struct, frozen=True, kw_only=True):
    """The next state, and what it could not hold."""

    state: StateFile
    overflow: Overflow = NOTHING


def begin_step(state: StateFile, to: StepRef) -> Transition:
    """Start or continue a step; nothing starts while a failed step waits for the user."""
    if state.needs_decision:
        raise StateError(
            f"step {state.step} ({state.name}) has failed and waits for a decision",
            hint="answer its decision: retry, skip or abort",
        )
    if state.step != to.step:
        return Transition(state=unskipped(_moved(state, to, StepStatus.IN_PROGRESS), {to.step}))
    begun = replace(state, name=to.name, status=StepStatus.IN_PROGRESS)
    return Transition(state=unskipped(begun, {to.step}))


def complete_step(state: StateFile, *, at: datetime, outcome: str = "") -> Transition:
    """Mark the current step completed: reset the retries, clear its retry log and blockers."""
    row = _row(state, at, outcome)
    cleared = replace(_cleared(state), status=StepStatus.COMPLETED)
    done = _with_row(unskipped(cleared, {state.step}), row)
    return _with_session(done, _session(state, at, EndReason.COMPLETED, outcome))


def boundary(
    state: StateFile, to: StepRef, *, at: datetime, outcome: str = "", notes: str = ""
) -> Transition:
    """End a session between two steps: the current one completed, the next one not started."""
    done = (
        Transition(state=state)
        if state.status is StepStatus.COMPLETED
        else complete_step(state, at=at, outcome=outcome)
    )
    said = notes or f"{one_line(state.name)} complete, {activity(to.name)} ready"
    session = _session(state, at, EndReason.BOUNDARY, said)
    moved = _moved(done.state, to, StepStatus.NOT_STARTED)
    return _with_session(Transition(state=moved, overflow=done.overflow), session)


def end_session(state: StateFile, *, at: datetime, reason: str, notes: str = "") -> Transition:
    """Record how the last session of the story ended, for now."""
    return _with_session(Transition(state=state), _session(state, at, reason, notes))


def fail_attempt(
    state: StateFile,
    *,
    reason: str,
    at: datetime,
    attempt: int | None = None,
    attempts: int = DEFAULT_ATTEMPTS,
) -> Transition:
    """Record a failed attempt: a retry is left, or the step has failed and the user must decide.

    `attempt` is its number, by default the one after the retries of the file. The file counts no more than
    three retries, however many `attempts` there are; a failed step always has three.
    """
    number = min(state.retry_count, MAX_RETRIES) + 1 if attempt is None else attempt
    row = RetryRow(
        attempt=str(number),
        step=state.step,
        name=one_line(state.name),
        sub_step=sub_step_words(state.sub_step),
        reason=one_line(reason),
        timestamp=at.isoformat(timespec="seconds"),
    )
    exhausted = number >= attempts
    after = replace(
        state,
        status=StepStatus.FAILED if exhausted else StepStatus.IN_PROGRESS,
        retry_count=MAX_RETRIES if exhausted else min(MAX_RETRIES, number),
    )
    blockers = (_blocker(state, row.reason, failures=number),) if exhausted else ()
    if state.dialect is not Dialect.RICH:
        return Transition(state=after, overflow=Overflow(retries=(row,), blockers=blockers))
    return Transition(
        state=replace(
            after,
            retry_log=(*state.retry_log, row),
            blockers=(*state.blockers, *(text for text in blockers if text not in state.blockers)),
        )
    )


def retry_by_user(state: StateFile) -> Transition:
    """Reset the retries of a failed step, because the user decided so."""
    return Transition(state=replace(_cleared(state), status=StepStatus.IN_PROGRESS))


def skip_by_user(state: StateFile, to: StepRef | None, *, at: datetime, reason: str = "") -> Transition:
    """Skip the current step, because the user decided so, and move to the next one.

    Without a next step the file says `skipped` until the flow continues.
    """
    left = replace(_cleared(state), status=StepStatus.SKIPPED)
    here = StepRef(step=state.step, name=state.name)
    noted = mark_skipped(left, here, at=at, reason=reason)
    if to is None:
        return noted
    return replace(noted, state=_moved(noted.state, to, StepStatus.NOT_STARTED))


def mark_skipped(state: StateFile, which: StepRef, *, at: datetime, reason: str = "") -> Transition:
    """Record that a step is skipped, the current one or a later one, without moving the story."""
    outcome = f"{SKIPPED_OUTCOME} by the user" + (f": {one_line(reason)}" if reason else "")
    row = CompletedRow(step=which.step, name=one_line(which.name), completed=_date(at), outcome=outcome)
    return _with_row(_with_bullet(state, which, f" ({_date(at)})"), row)


def _with_bullet(state: StateFile, which: StepRef, tail: str = "") -> StateFile:
    """Return the state with a bullet of Skipped Steps; the same if it has one, or rows instead."""
    if state.dialect is Dialect.RICH or which.step in map(skipped_number, state.skipped):
        return state
    bullet = f"{which.step} — {one_line(which.name)}{tail}"
    return replace(state, skipped=(*state.skipped, bullet))


def unskipped(state: StateFile, steps: Collection[str]) -> StateFile:
    """Return the state in which these steps are not skipped any more: they run, or will run again."""
    bullets = tuple(text for text in state.skipped if skipped_number(text) not in steps)
    rows = tuple(row for row in state.completed if not (is_skipped(row) and row.step in steps))
    return replace(state, skipped=bullets, completed=rows)


def finish(state: StateFile) -> Transition:
    """Mark the whole flow done."""
    return Transition(state=_moved(state, StepRef(step=DONE, name="Done"), StepStatus.COMPLETED))


def correct(state: StateFile, to: StepRef, status: StepStatus) -> Transition:
    """Correct the file to what the folders show."""
    if state.step != to.step:
        return Transition(state=_moved(_cleared(state), to, status))
    over = status in {StepStatus.COMPLETED, StepStatus.SKIPPED}
    return Transition(state=replace(_cleared(state) if over else state, name=to.name, status=status))


def change_flow(state: StateFile, flow: str, to: StepRef, status: StepStatus) -> Transition:
    """Correct a file of another flow to the story's own, at the step that the folders show."""
    # The numbers of skipped steps are those of the other flow.
    moved = replace(_moved(_cleared(state), to, status), skipped=())
    return Transition(state=replace(moved, flow=flow, cycle=None if state.cycle is None else 1))


def record_decision(state: StateFile, decision: str) -> Transition:
    """Record a decision of the user, once."""
    text = one_line(decision)
    if state.dialect is not Dialect.RICH:
        return Transition(state=state, overflow=Overflow(decisions=(text,)))
    if text in state.decisions:
        return Transition(state=state)
    return Transition(state=replace(state, decisions=(*state.decisions, text)))


def roll_back(state: StateFile, to: StepRef, *, later: Collection[str] = ()) -> Transition:
    """Return to a step to repeat it: it is in progress, and neither completed nor skipped any more.

    `later` are the steps after it, which are repeated as well.
    """
    again = {to.step, *later}
    moved = unskipped(_cleared(_moved(_cleared(state), to, StepStatus.IN_PROGRESS)), again)
    rows = tuple(row for row in moved.completed if row.step not in again)
    return Transition(state=replace(moved, completed=rows))


def enter_again(state: StateFile, to: StepRef) -> Transition:
    """Begin the next feature cycle of a finished existing-code project; nothing else increases the cycle."""
    if state.dialect is not Dialect.RICH and state.flow != EXISTING_CODE:
        raise StateError(
            f"flow '{state.flow}' has no second cycle", hint=f"only {EXISTING_CODE} has further cycles"
        )
    moved = _without_last_cycle(_moved(state, to, StepStatus.NOT_STARTED), to)
    return Transition(state=moved if state.cycle is None else replace(moved, cycle=state.cycle + 1))


def add_blocker(state: StateFile, text: str) -> Transition:
    """Record what blocks the story, once."""
    line = one_line(text)
    if state.dialect is not Dialect.RICH:
        return Transition(state=state, overflow=Overflow(blockers=(line,)))
    if line in state.blockers:
        return Transition(state=state)
    return Transition(state=replace(state, blockers=(*state.blockers, line)))


def restart_step(state: StateFile) -> Transition:
    """Return to the first sub-step, because what was saved of the step is corrupt."""
    return Transition(state=replace(state, sub_step=_fresh(state)))


def _session(state: StateFile, at: datetime, reason: str, notes: str) -> LastSession:
    return LastSession(date=_date(at), ended_at=_where(state), reason=reason, notes=one_line(notes))


def _with_session(changed: Transition, session: LastSession) -> Transition:
    """Put a last session into the file, or into the overflow where the dialect has no section for it."""
    if changed.state.dialect is Dialect.RICH:
        return replace(changed, state=replace(changed.state, last_session=session))
    return replace(changed, overflow=replace(changed.overflow, last_session=session))


def _without_last_cycle(state: StateFile, to: StepRef) -> StateFile:
    """Return the state in which steps from `to` on are not skipped: what was skipped is asked for again.

    Rows of the rich dialect stay as history, in words that do not count as a skip.
    """
    start = number_key(to.step) or (0, "")
    again = {number for number in state.skipped_steps if (number_key(number) or (0, "")) >= start}
    rows = tuple(
        replace(row, outcome=f"in an earlier cycle: {row.outcome}")
        if row.step in again and is_skipped(row)
        else row
        for row in state.completed
    )
    return unskipped(replace(state, completed=rows), again)


def _moved(state: StateFile, to: StepRef, status: StepStatus) -> StateFile:
    if state.status is StepStatus.SKIPPED and state.step not in {to.step, DONE}:
        # Somebody may have written `skipped` by hand; the mark must not be lost with the position.
        state = _kept_skip(state)
    return replace(state, step=to.step, name=to.name, status=status, sub_step=_fresh(state), retry_count=0)


def _kept_skip(state: StateFile) -> StateFile:
    if state.dialect is not Dialect.RICH:
        return _with_bullet(state, StepRef(step=state.step, name=state.name))
    if any(row.step == state.step for row in state.completed):
        return state
    row = CompletedRow(step=state.step, name=one_line(state.name), completed="", outcome=SKIPPED_OUTCOME)
    return replace(state, completed=(*state.completed, row))


def _fresh(state: StateFile) -> SubStep:
    if state.dialect is Dialect.AUTODEV:
        return AWAITING
    if isinstance(state.sub_step, Position) and state.sub_step.idle:
        return state.sub_step
    return IDLE


def _cleared(state: StateFile) -> StateFile:
    """Clear the retries of the current step and the blocker that they ended in."""
    # The second form is that of earlier versions.
    own = (_blocker_start(state), f"Step {state.step} ({one_line(state.name)}) ")
    return replace(
        state,
        retry_count=0,
        retry_log=tuple(row for row in state.retry_log if row.step != state.step),
        blockers=tuple(text for text in state.blockers if not text.startswith(own)),
    )


def _with_row(state: StateFile, row: CompletedRow) -> Transition:
    if state.dialect is not Dialect.RICH:
        return Transition(state=state, overflow=Overflow(completed=(row,)))
    others = tuple(known for known in state.completed if known.step != row.step)
    return Transition(state=replace(state, completed=(*others, row)))


def _row(state: StateFile, at: datetime, outcome: str) -> CompletedRow:
    return CompletedRow(
        step=state.step, name=one_line(state.name), completed=_date(at), outcome=one_line(outcome)
    )


def _blocker_start(state: StateFile) -> str:
    return f"{one_line(state.name)} (step {state.step}) failed "


def _blocker(state: StateFile, reason: str, *, failures: int) -> str:
    words = sub_step_words(state.sub_step)
    none = " at an unknown sub-step" if state.sub_step is None else " before its first sub-step"
    where = f" at sub-step {words}" if words else none
    return (
        f"{_blocker_start(state)}{count(failures, 'consecutive time')}{where}. "
        f"Last failure: {reason.rstrip('.')}. Automatic retries are used up."
    )


def sub_step_words(sub_step: SubStep) -> str:
    """Return a sub-step in words; empty if nothing was begun."""
    if sub_step is None or sub_step == AWAITING or (isinstance(sub_step, Position) and sub_step.idle):
        return ""
    return one_line(str(sub_step))


def _where(state: StateFile) -> str:
    words = sub_step_words(state.sub_step)
    return f"Step {state.step} {one_line(state.name)}" + (f" — SubStep {words}" if words else "")


def _date(at: datetime) -> str:
    return at.date().isoformat()

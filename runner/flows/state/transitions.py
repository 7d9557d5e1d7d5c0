"""The transitions of a story's position, as pure functions from a state to the next state.

Nothing is written here and no clock is read. What a dialect has no section for is not dropped: it is
returned as `overflow`, for the journal. A step runs once and is retried three times; after that only the
user can move it.
"""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from runner.core.flow import EndReason
from runner.core.model import DEFAULT_ATTEMPTS, MAX_RETRIES
from runner.core.text.names import one_line
from runner.core.text.words import count
from runner.flows.state.errors import StateError
from runner.flows.state.model import (
    AWAITING,
    DONE,
    IDLE,
    CompletedRow,
    Dialect,
    LastSession,
    Position,
    RetryRow,
    StateFile,
    StepRef,
    StepStatus,
    SubStep,
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
    if state.step == to.step:
        return Transition(state=replace(state, name=to.name, status=StepStatus.IN_PROGRESS))
    return Transition(state=_moved(state, to, StepStatus.IN_PROGRESS))


def complete_step(state: StateFile, *, at: datetime, outcome: str = "") -> Transition:
    """Mark the current step completed: reset the retries, clear its retry log and blockers."""
    row = _row(state, at, outcome)
    cleared = replace(_cleared(state), status=StepStatus.COMPLETED)
    done = _with_row(cleared, row)
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
    session = _session(state, at, EndReason.BOUNDARY, notes or f"{to.name} is next")
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
    blockers = (_blocker(state, row.reason, retries=attempts - 1),) if exhausted else ()
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
    outcome = "skipped by the user" + (f": {one_line(reason)}" if reason else "")
    left = replace(_cleared(state), status=StepStatus.SKIPPED)
    noted = _with_row(left, _row(state, at, outcome))
    if to is None:
        return noted
    return replace(noted, state=_moved(noted.state, to, StepStatus.NOT_STARTED))


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
    moved = _moved(_cleared(state), to, status)
    return Transition(state=replace(moved, flow=flow, cycle=None if state.cycle is None else 1))


def record_decision(state: StateFile, decision: str) -> Transition:
    """Record a decision of the user, once."""
    text = one_line(decision)
    if state.dialect is not Dialect.RICH:
        return Transition(state=state, overflow=Overflow(decisions=(text,)))
    if text in state.decisions:
        return Transition(state=state)
    return Transition(state=replace(state, decisions=(*state.decisions, text)))


def roll_back(state: StateFile, to: StepRef) -> Transition:
    """Return to a step to repeat it: it is in progress, and no longer among the completed ones."""
    moved = _cleared(_moved(_cleared(state), to, StepStatus.IN_PROGRESS))
    rows = tuple(row for row in state.completed if row.step != to.step)
    return Transition(state=replace(moved, completed=rows))


def enter_again(state: StateFile, to: StepRef) -> Transition:
    """Begin the next feature cycle of a finished existing-code project; nothing else increases the cycle."""
    if state.dialect is not Dialect.RICH and state.flow != EXISTING_CODE:
        raise StateError(
            f"flow '{state.flow}' has no second cycle", hint=f"only {EXISTING_CODE} has further cycles"
        )
    moved = _moved(state, to, StepStatus.NOT_STARTED)
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


def _moved(state: StateFile, to: StepRef, status: StepStatus) -> StateFile:
    return replace(state, step=to.step, name=to.name, status=status, sub_step=_fresh(state), retry_count=0)


def _fresh(state: StateFile) -> SubStep:
    if state.dialect is Dialect.AUTODEV:
        return AWAITING
    if isinstance(state.sub_step, Position) and state.sub_step.idle:
        return state.sub_step
    return IDLE


def _cleared(state: StateFile) -> StateFile:
    """Clear the retries of the current step and the blocker that they ended in."""
    start = _blocker_start(state)
    return replace(
        state,
        retry_count=0,
        retry_log=tuple(row for row in state.retry_log if row.step != state.step),
        blockers=tuple(text for text in state.blockers if not text.startswith(start)),
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
    return f"Step {state.step} ({one_line(state.name)}) "


def _blocker(state: StateFile, reason: str, *, retries: int) -> str:
    where = sub_step_words(state.sub_step)
    at = f" at sub-step {where}" if where else ""
    after = count(retries, "retry", "retries")
    return f"{_blocker_start(state)}failed{at} after {after}; the last failure: {reason}"


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

"""What two writers made of one state, joined field by field, without losing what either wrote.

Lists are joined as sets that keep their order: what either added stays, what either removed goes.
"""

from typing import TypeVar

from msgspec.structs import replace

from runner.flows.state.model import Dialect, Phase, StateFile, SubStep
from runner.flows.state.vocabulary import progress

_Item = TypeVar("_Item")


def join_items(
    base: tuple[_Item, ...], ours: tuple[_Item, ...], theirs: tuple[_Item, ...]
) -> tuple[_Item, ...]:
    """Join two versions of a list that were one list before."""
    kept = [item for item in ours if item in theirs or item not in base]
    return (*kept, *(item for item in theirs if item not in ours and item not in base))


def pick(base: _Item, ours: _Item, theirs: _Item) -> _Item:
    """Give the value that was changed; ours when both were."""
    return theirs if ours == base else ours


def join_lists(base: StateFile | None, ours: StateFile, theirs: StateFile) -> StateFile:
    """Give `ours` with all lists, the last session and the tracker joined with `theirs`."""
    before = base or replace(
        ours, completed=(), decisions=(), retry_log=(), blockers=(), last_session=None, tracker=None
    )
    return replace(
        ours,
        completed=join_items(before.completed, ours.completed, theirs.completed),
        decisions=join_items(before.decisions, ours.decisions, theirs.decisions),
        retry_log=join_items(before.retry_log, ours.retry_log, theirs.retry_log),
        blockers=join_items(before.blockers, ours.blockers, theirs.blockers),
        last_session=pick(before.last_session, ours.last_session, theirs.last_session),
        tracker=pick(before.tracker, ours.tracker, theirs.tracker),
    )


def join_writers(expected: StateFile | None, runner: StateFile, on_disk: StateFile) -> StateFile:
    """Join what the runner wants with what a sub-skill wrote since the runner looked (`expected`).

    The runner owns flow, step, name, status, retry_count and cycle. The sub-skill owns sub_step, but
    a sub-step of a step that the runner has left is void. The text is the one on disk.
    """
    joined = join_lists(expected, on_disk, runner)
    return replace(
        joined,
        last_session=pick(
            expected.last_session if expected else None, runner.last_session, on_disk.last_session
        ),
        tracker=pick(expected.tracker if expected else None, runner.tracker, on_disk.tracker),
        flow=runner.flow,
        step=runner.step,
        name=runner.name,
        status=runner.status,
        retry_count=runner.retry_count,
        cycle=runner.cycle,
        sub_step=_sub_step(expected, runner, on_disk),
    )


def _sub_step(expected: StateFile | None, runner: StateFile, on_disk: StateFile) -> SubStep:
    if expected is None or runner.sub_step is None:
        return on_disk.sub_step
    if (runner.step, runner.cycle) != (expected.step, expected.cycle):
        return runner.sub_step
    return pick(expected.sub_step, on_disk.sub_step, runner.sub_step)


def further(base: StateFile | None, ours: StateFile, theirs: StateFile) -> StateFile:
    """Choose whose place in the flow counts: the side that moved, or the further of two that did."""
    if base is not None and place(ours) == place(base):
        return theirs
    if base is not None and place(theirs) == place(base):
        return ours
    if ours.flow != theirs.flow and ours.dialect is not Dialect.RICH:
        return ours
    return max(ours, theirs, key=_distance)


def place(state: StateFile) -> tuple[object, ...]:
    """Give the values that tell where a story stands."""
    return state.flow, state.step, state.name, state.status, state.sub_step, state.retry_count, state.cycle


def _distance(state: StateFile) -> tuple[tuple[int, int, int], int, int]:
    phase = state.sub_step.phase if isinstance(state.sub_step, Phase) else -1
    return progress(state), phase, state.retry_count

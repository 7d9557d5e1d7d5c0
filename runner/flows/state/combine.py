"""Merges what two writers made of one state, field by field, without losing what either wrote.

Lists are merged as ordered sets: what either side added stays, what either side removed is dropped.
"""

from typing import TypeVar

from msgspec.structs import replace

from runner.flows.state.model import Dialect, Phase, StateFile, SubStep
from runner.flows.state.vocabulary import progress

_Item = TypeVar("_Item")


def join_items(
    base: tuple[_Item, ...], ours: tuple[_Item, ...], theirs: tuple[_Item, ...]
) -> tuple[_Item, ...]:
    """Merge two versions of a list that have a common ancestor."""
    kept = [item for item in ours if item in theirs or item not in base]
    return (*kept, *(item for item in theirs if item not in ours and item not in base))


def pick(base: _Item, ours: _Item, theirs: _Item) -> _Item:
    """Return the value that was changed; ours if both were."""
    return theirs if ours == base else ours


def join_lists(base: StateFile | None, ours: StateFile, theirs: StateFile) -> StateFile:
    """Return `ours` with all lists, the last session and the tracker merged with `theirs`."""
    before = base or replace(
        ours,
        completed=(),
        decisions=(),
        retry_log=(),
        blockers=(),
        skipped=(),
        last_session=None,
        tracker=None,
    )
    return replace(
        ours,
        completed=join_items(before.completed, ours.completed, theirs.completed),
        decisions=join_items(before.decisions, ours.decisions, theirs.decisions),
        retry_log=join_items(before.retry_log, ours.retry_log, theirs.retry_log),
        blockers=join_items(before.blockers, ours.blockers, theirs.blockers),
        skipped=join_items(before.skipped, ours.skipped, theirs.skipped),
        last_session=pick(before.last_session, ours.last_session, theirs.last_session),
        tracker=pick(before.tracker, ours.tracker, theirs.tracker),
    )


def join_writers(expected: StateFile | None, runner: StateFile, on_disk: StateFile) -> StateFile:
    """Merge what the runner wants with what a sub-skill wrote since the runner read the file (`expected`).

    The runner owns story, flow, step, name, status, retry_count and cycle. The sub-skill owns sub_step, but
    a sub-step of a step that the runner has left is dropped. The text is the one on disk.
    """
    joined = join_lists(expected, on_disk, runner)
    return replace(
        joined,
        last_session=pick(
            expected.last_session if expected else None, runner.last_session, on_disk.last_session
        ),
        tracker=pick(expected.tracker if expected else None, runner.tracker, on_disk.tracker),
        story=runner.story,
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
    """Choose whose position counts: the side that moved, or the one further along if both did."""
    if base is not None and position_of(ours) == position_of(base):
        return theirs
    if base is not None and position_of(theirs) == position_of(base):
        return ours
    if ours.flow != theirs.flow and ours.dialect is not Dialect.RICH:
        return ours
    return max(ours, theirs, key=_distance)


def position_of(state: StateFile) -> tuple[object, ...]:
    """Return the values that make up a story's position."""
    return state.flow, state.step, state.name, state.status, state.sub_step, state.retry_count, state.cycle


def _distance(state: StateFile) -> tuple[tuple[int, int, int], int, int]:
    phase = state.sub_step.phase if isinstance(state.sub_step, Phase) else -1
    return progress(state), phase, state.retry_count

"""Which old runs may be forgotten, their logs and their events, and how that is done.

The records of a run stay for ever, so `history` still shows it. What may still be needed is never touched: an
unfinished or parked run, the newest ones, by which stories know their past, and one whose landing is not
complete.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.files.deletion import delete_tree
from isolation.paths import autopilot_dir, run_dir
from runner.core.events.fold import fold
from runner.core.model import RunId, RunSnapshot, Status
from runner.records.history import RUNS_LOOKED_AT
from runner.records.journal import Journal

ALWAYS_KEPT = RUNS_LOOKED_AT + 1
"""So many newest runs stay, however old: plans read what they finished and how long that took."""

DAY = 86_400.0
MB = 1 << 20
_OVER = frozenset({Status.DONE, Status.NO_WORK, Status.FAILED, Status.SKIPPED})


class OldRun(Struct, frozen=True, kw_only=True):
    """One run on disk: its age in seconds, its size in bytes, and why it stays or may go."""

    run_id: RunId
    age: float
    size: int
    removable: bool = False
    reason: str = ""


def survey(
    journal: Journal, common_dir: Path, busy: Collection[str], *, now: float, days: float, megabytes: float
) -> tuple[OldRun, ...]:
    """Judge every run, the oldest first; changes nothing.

    A run may go when it is older than `days`, or to bring all runs together below `megabytes`. Those in
    `busy` stay.
    """
    sizes = journal.sizes()
    # Rows and indexes take more than the text of the events; each run has its share of the file.
    texts = sum(each.size for each in sizes.values())
    share = journal.path.stat().st_size / texts if texts else 0.0
    runs = [
        OldRun(
            run_id=run_id,
            age=max(0.0, now - sizes[run_id].newest),
            size=round(sizes[run_id].size * share) + _size(run_dir(common_dir, run_id)),
        )
        for run_id in reversed(journal.runs())
    ]
    excess = sum(run.size for run in runs) - megabytes * MB
    newest = {run.run_id for run in runs[-ALWAYS_KEPT:]}
    judged = []
    for run in runs:
        reason = f"it is among the newest {ALWAYS_KEPT}" if run.run_id in newest else ""
        old, large = run.age > days * DAY, excess > 0
        if not reason and not old and not large:
            reason = f"it is younger than {days:g} days"
        if not reason and run.run_id in busy:
            reason = "a landing of its stories is not complete"
        if not reason:
            reason = _unfinished(fold(run.run_id, journal.events(run.run_id)))
        if reason:
            judged.append(replace(run, reason=reason))
            continue
        excess -= run.size
        why = f"older than {days:g} days" if old else f"all runs together take more than {megabytes:g} MB"
        judged.append(replace(run, removable=True, reason=why))
    return tuple(judged)


def remove(journal: Journal, common_dir: Path, runs: Sequence[OldRun]) -> None:
    """Remove the logs and events of runs, and give the space back. The caller holds the lease. Blocking."""
    for run in runs:
        # The events last: after a kill in between, the runs are still listed, and removed the next time.
        delete_tree(run_dir(common_dir, run.run_id))
    if runs:
        journal.forget([run.run_id for run in runs])
        journal.compact()


def disk_use(common_dir: Path) -> int:
    """Return how many bytes the program's own folder in the repository takes."""
    return _size(autopilot_dir(common_dir))


def _unfinished(run: RunSnapshot) -> str:
    """Return why a run may still be continued; empty if it is over."""
    if not run.ended:
        return "it is not finished"
    if run.open_decisions:
        return "a question of it is open"
    left = sorted({story.status.value for story in run.stories.values() if story.status not in _OVER})
    return f"it has stories that are {' and '.join(left)}" if left else ""


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(place, name).lstat().st_size
            except OSError:
                continue  # removed in the meantime
    return total

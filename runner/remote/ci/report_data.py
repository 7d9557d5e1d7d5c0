"""Loads the data of a report from where the run was: this repository, or the shards of CI jobs."""

from collections.abc import Sequence
from pathlib import Path

from isolation.files.disk import read_tail
from isolation.git.diffstat import ChangedPath, Diff, changes, diff
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir
from runner.core.events.events import Event
from runner.core.model import RunSnapshot, SessionRecord, StoryId, StorySnapshot
from runner.core.schedule.offers import without_offers
from runner.records.shards.shard import LOGS, Shard, changes_of
from runner.remote.ci.join import JoinedRun
from runner.report.report_data import ReportData

_TAIL_BYTES = 1 << 16
_DIFF_LINES = 1000


def load_from_repository(
    repository: Repository, run: RunSnapshot, events: list[Event], *, now: float | None = None
) -> ReportData:
    """Load what this repository knows about a run; `now` only while the run is in progress."""
    folder = autopilot_dir(repository.common_dir)

    def log(session: SessionRecord) -> bytes:
        return _end_of(folder / session.log)

    found = {
        story.id: changes(repository, story.workspace.base, story.workspace.commit)
        for story in run.stories.values()
        if story.workspace.base and story.workspace.commit
    }

    def diff_of(story: StorySnapshot) -> Diff:
        return _diff(repository, story, found.get(story.id, ()))

    return ReportData(run=run, events=events, changes=found, log=log, diff=diff_of, now=now)


def load_from_shards(joined: JoinedRun, repository: Repository | None = None) -> ReportData:
    """Load what shards hold. A single shard also has the events of its machine.

    Needs no repository; one that has the commits, as after `aggregate --branches`, shows the diffs.
    """
    owners = {f"{LOGS}/runs/{shard.run_id}/": shard for shard in joined.shards}

    def log(session: SessionRecord) -> bytes:
        name = f"{LOGS}/{session.log}"
        shard = next((shard for start, shard in owners.items() if name.startswith(start)), None)
        return shard.read(name)[-_TAIL_BYTES:] if shard else b""

    found: dict[StoryId, list[ChangedPath]] = {}
    for shard in joined.shards:
        found |= {name: each for name, each in _changes(shard).items() if joined.sources.get(name) is shard}

    def diff_of(story: StorySnapshot) -> Diff:
        return _diff(repository, story, found.get(story.id, ())) if repository else Diff()

    events = joined.shards[0].events if len(joined.shards) == 1 else joined.events
    return ReportData(
        run=without_offers(joined.run),
        events=events,
        changes=found,
        log=log,
        diff=diff_of,
        problems=joined.problems,
    )


def _diff(repository: Repository, story: StorySnapshot, paths: Sequence[ChangedPath]) -> Diff:
    base, tip = story.workspace.base, story.workspace.commit
    if not (base and tip and paths):
        return Diff()
    return diff(repository, base, tip, paths, most_lines=_DIFF_LINES)


def _changes(shard: Shard) -> dict[StoryId, list[ChangedPath]]:
    return {
        name: [ChangedPath(path=path, added=added, removed=removed) for path, added, removed in paths]
        for name, paths in changes_of(shard).items()
    }


def _end_of(path: Path) -> bytes:
    try:
        return read_tail(path, _TAIL_BYTES)
    except OSError:
        return b""

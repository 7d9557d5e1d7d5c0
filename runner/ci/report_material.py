"""The material of a report, gathered from where the run was: this repository, or shards."""

import json
from pathlib import Path

from isolation.files.disk import read_tail
from isolation.git.diffstat import changes
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir
from runner.ci.join import Joined
from runner.core.events.events import Event
from runner.core.model import RunSnapshot, SessionRecord, StoryId
from runner.records.shards import CHANGES, LOGS, Shard, ShardError
from runner.report.material import FileChange, Material

_TAIL_BYTES = 1 << 16


def of_repository(
    repository: Repository, run: RunSnapshot, events: list[Event], *, now: float | None = None
) -> Material:
    """Gather what this repository knows of a run; `now` while it goes on."""
    folder = autopilot_dir(repository.common_dir)

    def log(session: SessionRecord) -> bytes:
        return _end_of(folder / session.log)

    found = {
        story.id: [
            FileChange(path=change.path, added=change.added, removed=change.removed)
            for change in changes(repository, story.base, story.commit)
        ]
        for story in run.stories.values()
        if story.base and story.commit
    }
    return Material(run=run, events=events, changes=found, log=log, now=now)


def of_shards(joined: Joined) -> Material:
    """Gather what shards hold; needs no repository. One shard alone also tells of its machine."""
    shards = {shard.run_id: shard for shard in joined.sources.values()}
    owners = {f"{LOGS}/runs/{run_id}/": shard for run_id, shard in shards.items()}

    def log(session: SessionRecord) -> bytes:
        name = f"{LOGS}/{session.log}"
        shard = next((shard for start, shard in owners.items() if name.startswith(start)), None)
        return shard.read(name)[-_TAIL_BYTES:] if shard else b""

    found: dict[StoryId, list[FileChange]] = {}
    for shard in shards.values():
        found |= {name: told for name, told in _changes(shard).items() if joined.sources.get(name) is shard}
    alone = next(iter(shards.values())) if len(shards) == 1 else None
    events = joined.events if alone is None else alone.events
    return Material(run=joined.run, events=events, changes=found, log=log, problems=joined.problems)


def _changes(shard: Shard) -> dict[StoryId, list[FileChange]]:
    try:
        loaded = json.loads(shard.read(CHANGES) or b"{}")
        return {
            StoryId(name): [
                FileChange(path=str(one["path"]), added=one["added"], removed=one["removed"]) for one in told
            ]
            for name, told in loaded.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ShardError(
            f"the shard {shard.path} is damaged: {CHANGES}: {error}", hint="run its job again."
        ) from error


def _end_of(path: Path) -> bytes:
    try:
        return read_tail(path, _TAIL_BYTES)
    except OSError:
        return b""

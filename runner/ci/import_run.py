"""A joined run put into a repository, as if it had run there: journal, logs, records, branches.

Afterwards `status`, `logs`, `report`, `decide` and `resume` work on it. Putting it there twice changes
nothing.
"""

from pathlib import Path

from isolation.files import lease
from isolation.files.disk import replace_file
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir, journal_path
from runner.ci.handover import take_branches
from runner.ci.join import Joined, known_part
from runner.core.events.fold import fold
from runner.core.model import StoryId
from runner.records.journal import Journal
from runner.records.shards import LOGS, Shard
from runner.records.telemetry import records_checkout, write_run


def take_in(repository: Repository, joined: Joined) -> bool:
    """Write the run into the repository; False when it is there already."""
    run_id = joined.run.run_id
    held = lease.acquire(repository.common_dir, run_id)
    try:
        with Journal.open(journal_path(repository.common_dir)) as journal:
            if run_id in journal.runs():
                return False
            repository.exclude("/.orchestrator/")
            for shard in _shards(joined):
                _copy_logs(shard, autopilot_dir(repository.common_dir))
            events = known_part(joined)
            # The journal comes last: what it tells of is there.
            write_run(fold(run_id, events), records_checkout(repository.paths))
            journal.append(events)
    finally:
        held.release()
    return True


def take_joined_branches(repository: Repository, joined: Joined) -> tuple[str, ...]:
    """Bring the branches of all stories; name those that moved or are new."""
    stories = [StoryId(name) for name in joined.sources]
    return take_branches(repository, _shards(joined), stories)


def _shards(joined: Joined) -> list[Shard]:
    return list({shard.run_id: shard for shard in joined.sources.values()}.values())


def _copy_logs(shard: Shard, folder: Path) -> None:
    for name in shard.files:
        if name.startswith(f"{LOGS}/runs/{shard.run_id}/"):
            place = folder / name.removeprefix(f"{LOGS}/")
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place, shard.read(name))

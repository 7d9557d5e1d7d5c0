"""Puts what shards hold into this repository: a whole run, as if it had run here, or only branches.

After a run was imported, `status`, `logs`, `report`, `decide` and `resume` work on it. Importing it twice
changes nothing.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from isolation.files import lease
from isolation.files.disk import replace_file
from isolation.git.bundles import read_bundle
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir, journal_path
from runner.ci.join import JoinedRun, resumable_events
from runner.core.events.fold import fold
from runner.core.model import StoryId
from runner.core.text.names import branch_of
from runner.records.journal import Journal
from runner.records.shards import BUNDLE, LOGS, Shard, newest
from runner.records.telemetry import records_checkout, write_run


def import_run(repository: Repository, joined: JoinedRun) -> bool:
    """Write the run into the repository; return False when it was imported before."""
    run_id = joined.run.run_id
    held = lease.acquire(repository.common_dir, run_id)
    try:
        with Journal.open(journal_path(repository.common_dir)) as journal:
            if run_id in journal.runs():
                return False
            repository.exclude("/.orchestrator/")
            for shard in joined.shards:
                _copy_logs(shard, autopilot_dir(repository.common_dir))
            events = resumable_events(joined)
            # The journal is written last, so that it never names a log or a record that does not exist.
            write_run(fold(run_id, events), records_checkout(repository.paths))
            journal.append(events)
    finally:
        held.release()
    return True


def import_branches(
    repository: Repository, shards: Sequence[Shard], stories: Collection[StoryId]
) -> tuple[str, ...]:
    """Import the branches of stories, each from its newest shard; return those that are new or moved."""
    wanted: dict[Path, tuple[Shard, dict[str, str]]] = {}
    for name, shard in newest(shards).items():
        branch = branch_of(name)
        if name in stories and branch in shard.branches:
            _, tips = wanted.setdefault(shard.path, (shard, {}))
            tips[branch] = shard.branches[branch]
    imported: list[str] = []
    for path, (shard, tips) in wanted.items():
        shard.read(BUNDLE)  # checks its digest: git's own message about a damaged bundle misleads
        imported += read_bundle(repository, path.resolve() / BUNDLE, tips)
    return tuple(imported)


def _copy_logs(shard: Shard, folder: Path) -> None:
    for name in shard.files:
        if name.startswith(f"{LOGS}/runs/{shard.run_id}/"):
            target = folder / name.removeprefix(f"{LOGS}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, shard.read(name))

"""Puts what shards hold into this repository: a whole run, as if it had run here, or only branches.

After a run was imported, `status`, `logs`, `report`, `decide` and `resume` work on it. Importing it twice
changes nothing.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import Struct

from isolation.errors import IsolationError
from isolation.files import lease
from isolation.files.disk import replace_file
from isolation.git.bundles import move_branches, take_objects
from isolation.git.large_files.stored import take_stored
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir, journal_path
from runner.core.events.fold import fold
from runner.core.model import StoryId
from runner.core.text.names import branch_of
from runner.records.journal import Journal
from runner.records.shards.results import newest
from runner.records.shards.shard import BUNDLE, LOGS, Shard
from runner.records.telemetry import records_checkout, write_run
from runner.remote.ci.earlier_work import set_older_aside
from runner.remote.ci.join import JoinedRun, resumable_events


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


class Imported(Struct, frozen=True, kw_only=True):
    """The branches that are new or moved, what was renamed for them, and why others were not imported."""

    branches: tuple[str, ...]
    renamed: tuple[str, ...]
    problems: tuple[str, ...]


def import_branches(
    repository: Repository, shards: Sequence[Shard], stories: Collection[StoryId]
) -> Imported:
    """Import the branches of stories, each from its newest shard. A bad bundle holds back no other one."""
    wanted: dict[Path, tuple[Shard, dict[str, str]]] = {}
    for name, shard in newest(shards).items():
        branch = branch_of(name)
        if name in stories and branch in shard.branches:
            _, tips = wanted.setdefault(shard.path, (shard, {}))
            tips[branch] = shard.branches[branch]
    imported: list[str] = []
    problems: list[str] = []
    superseded = superseded_tips(shards)
    renamed: list[str] = []
    for path, (shard, tips) in wanted.items():
        try:
            take_objects(repository, path.resolve() / BUNDLE, tips)
            take_stored(repository, shard.large_files)
            renamed += set_older_aside(repository, shard.base, tips)
            imported += move_branches(repository, path, tips, replaceable=superseded)
        except IsolationError as error:
            problems.append(f"{error.message}; {error.hint}" if error.hint else error.message)
    return Imported(branches=tuple(imported), renamed=tuple(renamed), problems=tuple(problems))


def superseded_tips(shards: Sequence[Shard]) -> dict[str, frozenset[str]]:
    """Return for each branch the tips of older shards, which a newer one replaces."""
    counting = newest(shards)
    found: dict[str, frozenset[str]] = {}
    for shard in shards:
        for name in shard.stories:
            branch, tip = branch_of(name), shard.branches.get(branch_of(name))
            if tip and counting[name] is not shard and tip != counting[name].branches.get(branch):
                found[branch] = found.get(branch, frozenset()) | {tip}
    return found


def _copy_logs(shard: Shard, folder: Path) -> None:
    for name in shard.files:
        if name.startswith(f"{LOGS}/runs/{shard.run_id}/"):
            target = folder / name.removeprefix(f"{LOGS}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, shard.read(name))

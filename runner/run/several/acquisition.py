"""What a run holds while it is active: the lease of each of its repositories, and the journal of its own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import trio
from trio import to_thread

from isolation.errors import KeeperError
from isolation.files import lease
from isolation.git.contained.object_store import take_over_left
from isolation.git.repository import Repository
from isolation.keeper.client import wait_for_old_keepers
from isolation.paths import journal_path, keepers_lock_path
from isolation.worktree.layers.records import clear_dead
from isolation.worktree.layers.seeing import cover_all, is_entered
from isolation.worktree.pool.ahead import drop_stale
from runner.core.model import RunId
from runner.records.journal import Journal
from runner.story.context.error_groups import unwrapped

OLD_KEEPERS_SECONDS = 15.0


@asynccontextmanager
async def acquired(
    repository: Repository, run_id: RunId, *, others: Sequence[Repository] = ()
) -> AsyncIterator[Journal]:
    """Hold the repository for one run, and `others`, once the processes of any killed run are gone.

    The order matters: only the holder of the lease may repair the journal or wait out old keepers, and the
    journal is closed before another run may open it. Leases are taken in the order of their paths: of two
    runs that want the same repositories one gets the first, and so all of them.
    """
    with ExitStack() as held:
        notes: tuple[str, ...] = ()
        for common in sorted({each.common_dir for each in (repository, *others)}):
            home = None if common == repository.common_dir else repository.top
            taken = await to_thread.run_sync(_take, common, run_id, home)
            held.callback(taken.release)
            notes += taken.notes
        for each in (repository, *others):
            await _settled(each.common_dir)
        journal = await to_thread.run_sync(Journal.open, journal_path(repository.common_dir))
        try:
            journal.notes = (*notes, *journal.notes)
            with unwrapped():
                yield journal
        finally:
            journal.close()


def _take(common: Path, run_id: RunId, home: Path | None) -> lease.Lease:
    held = lease.acquire(common, run_id, home=home)
    drop_stale(common, held.changed)
    return held


async def _settled(common: Path) -> None:
    """Wait until nothing of a killed run is alive in a repository, and take over what it left there."""
    with trio.move_on_after(OLD_KEEPERS_SECONDS) as patience:
        await wait_for_old_keepers(keepers_lock_path(common))
    if patience.cancelled_caught:
        raise KeeperError(
            f"processes of a killed run are still alive after {OLD_KEEPERS_SECONDS:g} s",
            hint="`autopilot-multi doctor` names them; end them, then run again.",
        )
    with suppress(OSError):  # a story that needs what is left there says so
        await to_thread.run_sync(take_over_left, common)
    if is_entered(common):
        await to_thread.run_sync(_show_layers, common)


def _show_layers(common: Path) -> None:
    """Have the worktrees that are layers as a killed run left them. Blocking."""
    clear_dead(common)
    cover_all(common, patience=OLD_KEEPERS_SECONDS)

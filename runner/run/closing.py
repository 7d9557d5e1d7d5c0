"""The end of a run: its last event, its records in the main checkout, and the disk as it should be left."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from trio import to_thread

from isolation.git.repository import Repository
from runner.core.events.events import RunEnded
from runner.records.event_log import EventLog
from runner.records.telemetry import records_checkout, write_run
from runner.run.cleanup import sweep
from runner.run.interaction import View


async def close_run(log: EventLog, repository: Repository, root: Path, view: View, *, exit_code: int) -> None:
    """Record the end, write the records, and delete what finished worktrees left below `root`."""
    async with records_on_error(log, repository):
        await log.record(RunEnded(exit_code=exit_code))
    await to_thread.run_sync(write_run, log.snapshot, records_checkout(repository.paths))
    await sweep(root, view.say)


@asynccontextmanager
async def records_on_error(log: EventLog, repository: Repository) -> AsyncIterator[None]:
    """Write the records as far as they are known when an error ends the block; never hide that error."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            # Not in a thread: the task may be cancelled, and a thread could not be waited for.
            write_run(log.snapshot, records_checkout(repository.paths))
        raise

"""When the records of a run are written: at its end, whatever ended it.

The main checkout keeps them for all worktrees of the repository.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from isolation.git.repository import Repository
from runner.core.model import RunSnapshot
from runner.records.event_log import EventLog


def write_records(run: RunSnapshot, repository: Repository) -> None:
    """Write the run's records; a second time replaces the first."""
    from runner.records.telemetry import write_run

    write_run(run, repository.main_checkout or repository.top)


@asynccontextmanager
async def books_kept(recorder: EventLog, repository: Repository) -> AsyncIterator[None]:
    """Write down what is known when an error ends the block, and never let that hide the error."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            write_records(recorder.snapshot, repository)  # not in a thread: this may be a cancelled task
        raise

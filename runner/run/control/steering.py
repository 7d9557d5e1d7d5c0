"""Ask something of the active run from another process: the one place where requests are sent.

Requests are rows in the journal, so a sender needs no connection and can do no harm: one that is lost only
does not see the answer. To watch a run, use `reader.py`.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from isolation.files.lease import holder_is_alive, read_holder
from isolation.paths import find_repository, journal_path
from runner.core.errors import NotFoundError, UsageError
from runner.core.events.steering import RequestAnswered
from runner.core.model import RunId, StoryId
from runner.core.text.names import did_you_mean
from runner.records.journal import Journal
from runner.run.control.requests import ControlRequest, encode

ANSWER_TIMEOUT = 3.0
"""How long to wait until the active run has answered; it looks several times a second."""
POLL_SECONDS = 0.05


class RefusedError(UsageError):
    """The run has refused what was asked."""


class Reply(Struct, frozen=True, kw_only=True):
    """What became of a request; `taken` is false if the run has not answered in time."""

    run_id: RunId
    taken: bool


class Steering:
    """Sends requests to the run that is active in the repository of a directory."""

    def __init__(self, directory: Path) -> None:
        self.common_dir = find_repository(directory).common_dir

    @property
    def active(self) -> RunId | None:
        """The run that is active now; None if no run is."""
        if not holder_is_alive(self.common_dir):
            return None
        holder = read_holder(self.common_dir)
        with Journal.open_readonly(journal_path(self.common_dir)) as journal:
            # A process takes the lease an instant before it writes its name into it.
            name = holder.run_id if holder else journal.newest_run()
            return RunId(name) if name in journal.runs() else None

    def require_active(self, *, hint: str = "`autopilot-multi status` shows the latest run.") -> RunId:
        """Return the active run, or raise."""
        active = self.active
        if active is None:
            raise NotFoundError("no run is active in this repository", hint=hint)
        return active

    def send(self, *requests: ControlRequest, run_id: RunId | None = None) -> Reply:
        """Ask the active run and wait until it has answered; raise if it refuses."""
        asked = run_id or self.require_active()
        with Journal.open_existing(journal_path(self.common_dir)) as journal:
            waiting = {journal.add_request(asked, *encode(request)) for request in requests}
            for live in self._poll(asked):
                # Read the journal even if the run just exited: it may have answered before.
                waiting -= _answered(journal, asked, waiting)
                if not waiting:
                    return Reply(run_id=asked, taken=True)
                if not live:
                    raise NotFoundError(
                        f"run {asked} ended before it could act on this",
                        hint="`autopilot-multi status` shows how it ended.",
                    )
        return Reply(run_id=asked, taken=False)

    def _poll(self, run_id: RunId) -> Iterator[bool]:
        """Yield whether the run is active, until the timeout."""
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while time.monotonic() < deadline:
            yield is_active(self.common_dir, run_id)
            time.sleep(POLL_SECONDS)


def is_active(common_dir: Path, run_id: RunId) -> bool:
    """Whether a process carries this run now."""
    holder = read_holder(common_dir)
    return holder is not None and holder.run_id == run_id and holder_is_alive(common_dir)


def require_stories(run_id: RunId, names: Sequence[str], known: Collection[StoryId]) -> tuple[StoryId, ...]:
    """Return these names as stories of a run, or raise with the nearest name."""
    for name in names:
        if name not in known:
            raise NotFoundError(
                f"run {run_id} has no story '{name}'",
                hint=did_you_mean(name, known) or f"it has: {', '.join(known)}.",
            )
    return tuple(StoryId(name) for name in names)


def _answered(journal: Journal, run_id: RunId, waiting: Collection[int]) -> set[int]:
    """Return which of these requests the run has acted on; raise if it refused one."""
    answers = (event.body for event in journal.events_of("RequestAnswered", run_id=run_id))
    found = {body.request_id: body for body in answers if isinstance(body, RequestAnswered)}
    for number in waiting:
        if number in found and found[number].problem:
            raise RefusedError(found[number].problem, hint="`autopilot-multi status` shows the run.")
    return set(waiting) & set(found)

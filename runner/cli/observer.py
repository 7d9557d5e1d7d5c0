"""Read the state of a run from another process: from the journal, the lease and the logs on disk.

Read-only, and standard library only: `status` must be instant and must not disturb the active run.
"""

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from isolation.files.disk import read_tail
from isolation.files.lease import holder_is_alive, read_holder
from isolation.frozen import frozen
from isolation.paths import autopilot_dir, find_repository, journal_path
from runner.core.events.fold import apply
from runner.core.model import RunId, RunSnapshot, SessionRecord, Status, StorySnapshot
from runner.core.text.screen import TAIL_BYTES, LineTail
from runner.records.journal import Journal


@frozen
class Sight:
    """A run at one look; `alive` tells whether a coordinator carries it now."""

    run: RunSnapshot
    alive: bool

    @property
    def over(self) -> bool:
        """Tell whether nothing will change any more by itself."""
        return self.run.ended or not self.alive


class Observer:
    """Follows one run: a named one, else the one that is going on, else the newest."""

    def __init__(self, directory: str, name: str | None = None) -> None:
        self.common_dir = find_repository(Path(directory)).common_dir
        self.journal = Journal.open_readonly(journal_path(self.common_dir))
        try:
            self.follow(self.journal.find_run(name) if name else self._present_run())
        except BaseException:
            self.journal.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.journal.close()

    def follow(self, run_id: RunId) -> None:
        """Turn to another run."""
        self.run_id = run_id
        self._run = RunSnapshot(run_id=run_id, started_at=0.0)
        self._seq = 0

    def look(self) -> Sight:
        """See how the run is now."""
        # Asked before the events are read, or a run that ends in between would look interrupted.
        alive = self._is_alive()
        self._read()
        if not alive and not self._run.ended and self._is_alive():
            alive = True
            self._read()
        return Sight(run=self._run, alive=alive)

    def log_of(self, session: SessionRecord) -> Path:
        """Give the file that holds what a session printed."""
        return autopilot_dir(self.common_dir) / session.log

    def with_last_lines(self, run: RunSnapshot) -> RunSnapshot:
        """Add the newest line of each running story, which the journal does not hold."""
        stories = {
            name: replace(story, last_line=self._last_line(story) or story.last_line)
            if story.status is Status.RUNNING
            else story
            for name, story in run.stories.items()
        }
        return replace(run, stories=stories)

    def _read(self) -> None:
        events, self._seq = self.journal.events_after(self.run_id, self._seq)
        for event in events:
            self._run = apply(self._run, event)

    def _present_run(self) -> RunId:
        holder = read_holder(self.common_dir)
        runs = self.journal.runs()
        if holder and holder.run_id in runs and holder_is_alive(self.common_dir):
            return RunId(holder.run_id)
        return self.journal.newest_run()

    def _is_alive(self) -> bool:
        if not holder_is_alive(self.common_dir):
            return False
        holder = read_holder(self.common_dir)
        # A holder takes the lease an instant before it writes its name.
        return holder is None or holder.run_id == self.run_id

    def _last_line(self, story: StorySnapshot) -> str:
        if not story.sessions:
            return ""
        tail = LineTail()
        try:
            tail.feed(read_tail(self.log_of(story.sessions[-1]), TAIL_BYTES))
        except OSError:
            return ""
        return tail.line

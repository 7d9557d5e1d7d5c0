"""Read the state of a run from another process: from the journal, the lease and the logs on disk.

Read-only, and standard library only: `status` must be instant and must not disturb the active run.
"""

import shlex
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from msgspec.structs import replace

from isolation.files.disk import read_tail
from isolation.files.lease import holder_is_alive, read_holder
from isolation.paths import autopilot_dir, find_repository, journal_path, story_dir
from runner.core.errors import NotFoundError, UsageError
from runner.core.events.events import Event
from runner.core.events.fold import apply
from runner.core.flow import QUICK
from runner.core.model import RunId, RunSnapshot, SessionRecord, Status, StorySnapshot
from runner.core.progress.base import BaseCheck
from runner.core.progress.landing import LEASE, LandingProgress
from runner.core.text.screen import TAIL_BYTES, LineTail, neutral
from runner.records.journal import Journal

if TYPE_CHECKING:
    from runner.core.outlook.left import Sample

MESSAGE_BYTES = 1 << 16
"""In how much of a log's end an agent's last message is looked for; tool results can be long."""


class CurrentRun(Struct, frozen=True, kw_only=True):
    """The state of a run when it was read; `alive` is true while a process runs it."""

    run: RunSnapshot
    alive: bool

    @property
    def over(self) -> bool:
        """Whether the run will not change any more unless it is resumed."""
        return self.run.ended or not self.alive


def has_more(story: StorySnapshot) -> bool:
    """Return whether a state file, or the journal's memory, knows more of a story than its status."""
    return story.flow != QUICK.name or bool(story.memories)


class RunReader:
    """Reads one run: the named one, else the active one, else the newest."""

    def __init__(self, directory: str, name: str | None = None) -> None:
        self._paths = find_repository(Path(directory))
        self.common_dir = self._paths.common_dir
        self.journal = self._open()
        try:
            self.follow(self.journal.find_run(name) if name else self._default_run())
        except BaseException:
            self.journal.close()
            raise

    def _open(self) -> Journal:
        try:
            return Journal.open_readonly(journal_path(self.common_dir))
        except NotFoundError as error:
            holder = read_holder(self.common_dir)
            if holder is None or not holder.home or not holder_is_alive(self.common_dir):
                raise
            raise UsageError(
                f"run {holder.run_id} of {holder.home} works here, and its journal is there",
                hint=f"`autopilot-multi status -C {shlex.quote(holder.home)}` shows it.",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.journal.close()

    def follow(self, run_id: RunId) -> None:
        """Switch to another run."""
        self.run_id = run_id
        self._run = RunSnapshot(run_id=run_id, started_at=0.0)
        self._seq = 0

    def follow_default(self) -> None:
        """Switch to the active run, else to the newest, if that is another one by now."""
        run_id = self._default_run()
        if run_id != self.run_id:
            self.follow(run_id)

    def read(self) -> CurrentRun:
        """Return the current state of the run."""
        # Check the lease before the events: a run that ends in between must not look interrupted.
        alive = self._is_alive()
        self._load_events()
        if not alive and not self._run.ended and self._is_alive():
            alive = True
            self._load_events()
        return CurrentRun(run=self._run, alive=alive)

    def events_since(self, seq: int) -> tuple[list[Event], int]:
        """Return the run's events after a position in the journal, and the position to continue from."""
        return self.journal.events_after(self.run_id, seq)

    def landing(self, run: RunSnapshot) -> tuple[LandingProgress | None, str]:
        """Return the landing that is in progress, else the run's last one; and the id of the one in progress.

        One in progress may concern other runs only.
        """
        last = run.landings[-1] if run.landings else None
        holder = read_holder(self.common_dir) if holder_is_alive(self.common_dir) else None
        if holder is None:
            return last, ""
        active = holder.run_id.removeprefix(LEASE)
        if active == holder.run_id:  # a run holds the repository, which may end in a landing
            own = last is not None and holder.run_id == run.run_id and not last.state.final
            return last, last.id if last is not None and own else ""
        if last is not None and last.id == active:
            return last, active
        other = next((each for each in self.journal.landings() if each.id == active), None)
        return (other, active) if other is not None else (last, "")  # it has not begun to verify

    def log_of(self, session: SessionRecord | BaseCheck) -> Path:
        """Return the log file of a session, or of a command on the base."""
        return autopilot_dir(self.common_dir) / session.log

    def past_samples(self) -> "tuple[Sample, ...]":
        """Return what the stories of earlier runs took: what is left of this run is estimated by them."""
        from runner.records.telemetry import load_samples, records_checkout

        return load_samples(records_checkout(self._paths))

    def base_hooks(self) -> tuple[Path, ...]:
        """Return the logs of the hooks that prepared the worktree in which the base was asked."""
        from runner.core.base.check import BASE

        return tuple(sorted(story_dir(self.common_dir, self.run_id, BASE).glob("hook-*.log")))

    def with_last_lines(self, run: RunSnapshot) -> RunSnapshot:
        """Add the newest output line of each running story; the journal does not contain it."""
        stories = {
            name: replace(story, last_line=self._last_line(story) or story.last_line)
            if story.status is Status.RUNNING
            else story
            for name, story in run.stories.items()
        }
        return replace(run, stories=stories)

    def _load_events(self) -> None:
        events, self._seq = self.journal.events_after(self.run_id, self._seq)
        for event in events:
            self._run = apply(self._run, event)

    def _default_run(self) -> RunId:
        holder = read_holder(self.common_dir)
        if holder and holder_is_alive(self.common_dir) and holder.run_id in self.journal.runs():
            return RunId(holder.run_id)
        return self.journal.newest_run()

    def _is_alive(self) -> bool:
        if not holder_is_alive(self.common_dir):
            return False
        holder = read_holder(self.common_dir)
        # A process takes the lease an instant before it writes its name into it.
        return holder is None or holder.run_id == self.run_id

    def _last_line(self, story: StorySnapshot) -> str:
        if not story.sessions:
            return ""
        newest, tail = story.sessions[-1], LineTail()
        try:
            tail.feed(read_tail(self.log_of(newest), TAIL_BYTES))
            if tail.line.startswith("{"):  # an agent that reports in JSON
                return last_message(newest.agent, read_tail(self.log_of(newest), MESSAGE_BYTES))
        except OSError:
            return ""
        return tail.line


def last_message(agent: str, output: bytes) -> str:
    """Return what an agent last said or did, from the end of its output; empty if it does not say."""
    from runner.agents.catalog import KNOWN
    from runner.core.agent_settings import AgentSettings

    if agent not in KNOWN:
        return ""
    parse = KNOWN[agent](AgentSettings()).parse
    updates = (parse(line) for line in reversed(output.splitlines()))
    return next((neutral(one.message) for one in updates if one is not None and one.message), "")

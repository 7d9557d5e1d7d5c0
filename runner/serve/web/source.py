"""What the pages show, read through the one door for watchers. All of this blocks: call it in a thread."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from isolation.git.direct.refs import head_without_git
from isolation.paths import RepositoryPaths, find_repository
from runner.core.errors import NotFoundError
from runner.core.events.events import Event
from runner.core.model import RunSnapshot, StoryId
from runner.core.outlook.left import Outlook, Sample, outlook
from runner.core.progress.landing import LandingProgress
from runner.core.schedule.offers import without_offers
from runner.report.run_document import settled
from runner.run.control.merged import with_merged
from runner.run.control.reader import RunReader

LINES_SECONDS = 0.5
"""How often the newest output lines are read; they change all the time."""

OUTLOOK_SECONDS = 5.0
"""How often the time left is estimated."""

MOST_READERS = 8


class Seen(Struct, frozen=True, kw_only=True):
    """A run when it was read. `alive`: a process runs it. `landing_id`: the landing that is in progress.

    `lines` is the newest output of each running story, `outlook` what is expected of the run; `newest`: it
    was not named.
    """

    run: RunSnapshot
    alive: bool
    newest: bool = True
    landing: LandingProgress | None = None
    landing_id: str = ""
    lines: Mapping[StoryId, str] = field(default_factory=dict)
    outlook: Outlook = field(default_factory=Outlook)

    @property
    def active(self) -> bool:
        """Whether the run can be steered."""
        return self.alive and not self.run.ended


class _Followed:
    """One run that somebody looks at: its reader, and what is expensive to find out again."""

    def __init__(self, directory: str, name: str) -> None:
        self.reader = RunReader(directory, name or None)
        self.lines: Mapping[StoryId, str] = {}
        self.lines_at = 0.0
        self.outlook = Outlook()
        self.outlook_at = 0.0
        self.past: tuple[Sample, ...] | None = None
        self.merged: tuple[object, str, RunSnapshot] | None = None


class Source:
    """Reads runs of one repository; what several browsers ask for at the same time is read once."""

    def __init__(self, directory: Path, run: str = "") -> None:
        self.directory = directory
        self.paths: RepositoryPaths = find_repository(directory)
        self._default = run
        self._lock = threading.Lock()
        self._followed: dict[str, _Followed] = {}

    def see(self, name: str = "") -> Seen | None:
        """Return a run by its id; without one the run that was chosen, else the active or newest one.

        None if nothing has run here yet.
        """
        with self._lock:
            try:
                return self._see(self._follow(name or self._default), newest=not name)
            except NotFoundError:
                if name:
                    raise
                return None

    def events(self, name: str = "") -> list[Event]:
        """Return all events of a run, oldest first."""
        with self._lock:
            reader = self._follow(name or self._default).reader
            return reader.journal.events(reader.run_id)

    def log_of(self, seen: Seen, story_id: StoryId, number: int) -> tuple[Path, str] | None:
        """Return the log and the agent of a session by its number from 1, or of the newest one."""
        sessions = seen.run.stories[story_id].sessions
        if not sessions or not -1 <= number - 1 < len(sessions):
            return None
        with self._lock:
            session = sessions[number - 1]
            return self._follow(seen.run.run_id).reader.log_of(session), session.agent

    def close(self) -> None:
        """Close the journals."""
        for followed in self._followed.values():
            followed.reader.journal.close()

    def _follow(self, name: str) -> _Followed:
        if name not in self._followed:
            while len(self._followed) >= MOST_READERS:
                self._followed.pop(next(iter(self._followed))).reader.journal.close()
            self._followed[name] = _Followed(str(self.directory), name)
        return self._followed[name]

    def _see(self, followed: _Followed, *, newest: bool) -> Seen:
        reader = followed.reader
        current = reader.read()
        if current.over and not self._default and newest:
            reader.follow_default()
            current = reader.read()
        landing, landing_id = reader.landing(current.run)
        run = current.run
        if current.over:
            run = self._merged(followed, settled(run, alive=False), run)
        if landing_id:  # what it takes is not offered a second time
            run = without_offers(run)
        lines = {} if current.over else self._lines(followed, current.run)
        return Seen(
            run=run,
            alive=current.alive,
            newest=newest,
            landing=landing,
            landing_id=landing_id,
            lines=lines,
            outlook=Outlook() if current.over else self._outlook(followed, current.run),
        )

    def _merged(self, followed: _Followed, run: RunSnapshot, read: RunSnapshot) -> RunSnapshot:
        """Mark what is merged by now; git is asked again only when the run or the checkout has moved."""
        head = ""
        with suppress(OSError):
            head = head_without_git(self.paths)
        known = followed.merged
        if known is None or known[0] is not read or known[1] != head:
            known = followed.merged = (read, head, with_merged(run, self.directory))
        return known[2]

    @staticmethod
    def _lines(followed: _Followed, run: RunSnapshot) -> Mapping[StoryId, str]:
        now = time.monotonic()
        if now - followed.lines_at >= LINES_SECONDS:
            shown = followed.reader.with_last_lines(run)
            followed.lines = {story.id: story.last_line for story in shown.stories.values()}
            followed.lines_at = now
        return followed.lines

    @staticmethod
    def _outlook(followed: _Followed, run: RunSnapshot) -> Outlook:
        now = time.monotonic()
        if followed.past is None:
            followed.past = followed.reader.past_samples()
        if now - followed.outlook_at >= OUTLOOK_SECONDS:
            followed.outlook = outlook(run, followed.past, time.time())
            followed.outlook_at = now
        return followed.outlook

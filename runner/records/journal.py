"""The durable list of events from which status, resume and the report are folded.

One SQLite file: the coordinator appends events, other processes read them while it does and
leave requests for it. What `append` has returned from survives a kill and a power cut. A file
that cannot be trusted is set aside, never emptied; one that a newer version wrote is not touched.
"""

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from runner.core.errors import JournalError, NotFoundError
from runner.core.events.events import Event, OutputSeen, RunStarted, UnknownEventError, decode, encode_all
from runner.core.events.folds.landing_fold import Landings, landings_after
from runner.core.events.landing import KINDS as LANDING_KINDS
from runner.core.events.landing import LandingBody
from runner.core.events.steering import StoriesAdded, StoryEdited
from runner.core.events.story_json import require_entry
from runner.core.model import RunId, StoryId
from runner.core.progress.repositories import repositories_of
from runner.records.journal_file import (
    NO_RUN_HINT,
    begin,
    connect,
    connect_readonly,
    damaged,
    explain,
    quiet_state,
    require_journal,
)

_RUNS = """
WITH RECURSIVE runs (id) AS (
    SELECT MIN(run_id) FROM events
    UNION ALL
    SELECT (SELECT MIN(run_id) FROM events WHERE run_id > id) FROM runs WHERE id IS NOT NULL)
SELECT id FROM runs WHERE id IS NOT NULL ORDER BY (SELECT MIN(seq) FROM events WHERE run_id = id) DESC
"""
"""Goes from run to run in the index: SQLite would read every event for `SELECT DISTINCT`."""


class Request(Struct, frozen=True, kw_only=True):
    """What another process asks of the coordinator."""

    id: int
    run_id: RunId
    at: float
    kind: str
    story_id: StoryId | None
    data: Mapping[str, Any]


class RunSize(Struct, frozen=True, kw_only=True):
    """What a run takes in the journal: bytes, number of events, and when the newest was written."""

    size: int
    events: int
    newest: float


class Journal:
    """An open journal. Calls may come from any thread; each is one transaction.

    `notes` is what the user should know about its opening.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, notes: Sequence[str] = ()) -> None:
        self.path = path
        self.notes = tuple(notes)
        self._connection = connection
        self._frozen: tuple[int, ...] | None = None
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open for the coordinator, which holds the lease; create what is missing."""
        connection, notes = begin(path)
        return cls(path, connection, notes=notes)

    @classmethod
    def open_existing(cls, path: Path) -> Self:
        """Open to leave a request beside a living coordinator; creates and repairs nothing."""
        require_journal(path)
        return cls(path, connect(path))

    @classmethod
    def open_readonly(cls, path: Path) -> Self:
        """Open for reading, also while the coordinator writes; changes nothing if it does not."""
        require_journal(path)
        state = quiet_state(path)
        journal = cls(path, connect_readonly(path))
        journal._frozen = state
        return journal

    def append(self, events: Sequence[Event]) -> None:
        """Make events durable, all or none. What is only shown is left out."""
        rows = _rows([event for event in events if not isinstance(event.body, OutputSeen)])
        if rows:
            with self._transaction() as connection:
                connection.executemany(
                    "INSERT INTO events (run_id, at, kind, story_id, data) VALUES (?, ?, ?, ?, ?)", rows
                )

    def events(self, run_id: RunId) -> list[Event]:
        """Return a run's events, oldest first."""
        return self.events_after(run_id, 0)[0]

    def events_after(self, run_id: RunId, seq: int) -> tuple[list[Event], int]:
        """Return a run's events after a position in the journal, and the position to continue from."""
        rows = self._select(
            "SELECT seq, at, kind, data FROM events WHERE run_id = ? AND seq > ? ORDER BY seq", run_id, seq
        )
        found = [self._event(run_id, at, kind, data) for _, at, kind, data in rows]
        return found, rows[-1][0] if rows else seq

    def landings(self) -> Landings:
        """Return all landings, oldest first, over all runs."""
        found: Landings = ()
        for event in self.events_of(*LANDING_KINDS):
            if isinstance(event.body, LandingBody):
                found = landings_after(found, event.body, event.at)
        return found

    def events_of(self, *kinds: str, run_id: RunId | None = None) -> list[Event]:
        """Return the events of some kinds, of one or of all runs, oldest first; others are not decoded."""
        marks = ", ".join("?" for _ in kinds)
        only, values = ("", ()) if run_id is None else (" AND run_id = ?", (run_id,))
        query = f"SELECT run_id, at, kind, data FROM events WHERE kind IN ({marks}){only} ORDER BY seq"  # noqa: S608  marks
        return [self._event(*row) for row in self._select(query, *kinds, *values)]

    def runs(self) -> list[RunId]:
        """List all runs, the one that started last first."""
        return [RunId(row[0]) for row in self._select(_RUNS)]

    def sizes(self) -> dict[RunId, RunSize]:
        """Return what each run takes; reads every event."""
        rows = self._select("SELECT run_id, SUM(LENGTH(data)), COUNT(*), MAX(at) FROM events GROUP BY run_id")
        return {RunId(row[0]): RunSize(size=row[1], events=row[2], newest=row[3]) for row in rows}

    def forget(self, run_ids: Sequence[RunId]) -> None:
        """Remove runs, their events and requests, all or none."""
        with self._transaction() as connection:
            for table in ("events", "requests"):
                delete = f"DELETE FROM {table} WHERE run_id = ?"  # noqa: S608  constants
                connection.executemany(delete, [(run_id,) for run_id in run_ids])

    def compact(self) -> None:
        """Free the disk space of what was removed; a kill leaves the file as it was."""
        with self._lock:
            try:
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error as error:
                raise explain(self.path, error) from error

    def newest_run(self) -> RunId:
        """Return the run that started last."""
        runs = self.runs()
        if not runs:
            raise NotFoundError("this repository has no runs yet", hint=NO_RUN_HINT)
        return runs[0]

    def find_run(self, prefix: str) -> RunId:
        """Return the one run whose id begins with `prefix`."""
        runs = self.runs()
        found = [run for run in runs if run == prefix] or [run for run in runs if run.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        if not runs:
            raise NotFoundError(f"no run '{prefix}': this repository has no runs yet", hint=NO_RUN_HINT)
        if not found:
            raise NotFoundError(f"no run begins with '{prefix}'", hint=f"runs: {_some(runs)}.")
        raise NotFoundError(
            f"{len(found)} runs begin with '{prefix}'", hint=f"write more of one of: {_some(found)}."
        )

    def add_request(
        self,
        run_id: RunId,
        kind: str,
        story_id: StoryId | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> int:
        """Ask something of the coordinator of a run; return the number of the request."""
        with self._transaction() as connection:
            added = connection.execute(
                "INSERT INTO requests (run_id, at, kind, story_id, data) VALUES (?, ?, ?, ?, ?)",
                (run_id, time.time(), kind, story_id, json.dumps(dict(data or {}))),
            )
            return int(added.lastrowid or 0)

    def requests_after(self, run_id: RunId, request_id: int = 0) -> list[Request]:
        """Return what was asked of a run's coordinator after a request, oldest first."""
        rows = self._select(
            "SELECT id, at, kind, story_id, data FROM requests WHERE run_id = ? AND id > ? ORDER BY id",
            run_id,
            request_id,
        )
        return [
            Request(id=number, run_id=run_id, at=at, kind=kind, story_id=story_id, data=self._asked(data))
            for number, at, kind, story_id, data in rows
        ]

    def _asked(self, data: str) -> dict[str, Any]:
        try:
            asked = json.loads(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise damaged(self.path, f"a request cannot be read: {error}") from error
        return asked if isinstance(asked, dict) else {}

    def close(self) -> None:
        """Close the file; the last writer to do so merges the write-ahead log into it."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                except BaseException:
                    # SQLite has rolled back by itself after some errors, a full disk among them.
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise explain(self.path, error) from error

    def _select(self, query: str, *values: object) -> list[Any]:
        with self._lock:
            self._catch_up()
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                # A writer that started just now makes a frozen view look damaged.
                if self._catch_up():
                    return self._connection.execute(query, values).fetchall()
                raise explain(self.path, error) from error
            except UnicodeDecodeError as error:
                raise damaged(self.path, str(error)) from error
            except MemoryError as error:  # as SQLite says of some files that are no journal
                raise damaged(self.path, "SQLite has no memory for what it claims to hold") from error

    def _catch_up(self) -> bool:
        """Leave the frozen view of a quiet journal once a process writes, or has written, to it."""
        if self._frozen is None or self._frozen == (state := quiet_state(self.path)):
            return False
        self._connection.close()
        self._connection = connect_readonly(self.path)
        self._frozen = state
        return True

    def _event(self, run_id: RunId, at: float, kind: str, data: str) -> Event:
        try:
            body = decode(kind, json.loads(data))
            if isinstance(body, RunStarted | StoriesAdded):
                for entry in body.stories:
                    require_entry(entry)
            if isinstance(body, RunStarted):
                repositories_of(body.repos)
            if isinstance(body, StoryEdited):
                require_entry(body.story)
            return Event(run_id=run_id, at=at, body=body)
        except UnknownEventError as error:
            raise JournalError(
                f"{self.path} holds an event '{kind}', which a newer version of autopilot-multi wrote",
                hint="update autopilot-multi; nothing was changed.",
            ) from error
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise JournalError(
                f"{self.path} holds an event '{kind}' that cannot be read: {error}",
                hint="copy the file away and report it; branches and worktrees are not affected.",
            ) from error


def _rows(events: Iterable[Event]) -> list[tuple[str, float, str, str | None, str]]:
    return [
        (event.run_id, event.at, kind, data.get("story_id"), json.dumps(data, separators=(",", ":")))
        for event, kind, data in encode_all(events)
    ]


def _some(runs: Sequence[RunId], limit: int = 5) -> str:
    more = f" and {len(runs) - limit} more" if len(runs) > limit else ""
    return ", ".join(runs[:limit]) + more

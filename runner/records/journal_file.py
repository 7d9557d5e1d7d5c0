"""The journal's file: how it is created, opened, checked and, when it cannot be trusted, set aside.

A quiet file (no write-ahead log beside it) is read without a lock and without leaving a trace.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

from runner.core.errors import JournalError, NotFoundError

SCHEMA_VERSION = 1
BUSY_MILLISECONDS = 10_000
NO_RUN_HINT = "`autopilot-multi` starts the first one; `autopilot-multi plan` shows what it would do."
_CORRUPT_HINT = (
    "branches and worktrees are not affected. The next `autopilot-multi` run keeps the damaged file "
    "beside a new one."
)
_SIDECARS = ("", "-wal", "-shm")
_UNTRUSTED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, at REAL NOT NULL,
    kind TEXT NOT NULL, story_id TEXT, data TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_run ON events (run_id);
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, at REAL NOT NULL,
    kind TEXT NOT NULL, story_id TEXT, data TEXT NOT NULL);
PRAGMA user_version = 1;
COMMIT;
"""


class CorruptJournalError(JournalError):
    """The file is not a journal, or no longer one."""


def begin(path: Path) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    """Open for the coordinator, creating or replacing what is needed; also return notes for the user."""
    notes: tuple[str, ...] = ()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size:
            try:
                require_sound(path)
            except CorruptJournalError as error:
                kept = _set_aside(path)
                notes = (f"{error.message}; it was kept as {kept.name}, and a new journal was started",)
        _make_private(path)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    connection = connect(path, create=True)
    try:
        connection.executescript(_SCHEMA)
    except sqlite3.Error as error:
        connection.close()
        raise explain(path, error) from error
    return connection, notes


def _make_private(path: Path) -> None:
    """Create the file for its owner alone, if it is not there; SQLite gives its sidecars the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open for writing, so that what is committed survives a power cut."""
    try:
        connection = _open(path, "mode=rwc" if create else "mode=rw")
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error as error:
        raise explain(path, error) from error
    return connection


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Open for reading; a write-ahead log in a folder that denies writing is read from a copy."""
    try:
        if quiet_state(path) is not None:
            # Such a connection never notices that the file has changed: its user must check.
            return _probed(_open(path, "mode=ro&immutable=1"))
        try:
            connection = _probed(_open(path, "mode=ro"))
        except sqlite3.OperationalError:
            return _probed(_copied(path))
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
    except sqlite3.Error as error:
        raise explain(path, error) from error
    return connection


def quiet_state(path: Path) -> tuple[int, ...] | None:
    """Return the state of a file that alone is the whole journal; None while a process writes to it."""
    with contextlib.suppress(OSError):
        if _beside(path, "-wal").stat().st_size > 0 or _beside(path, "-shm").exists():
            return None
    try:
        status = path.stat()
    except OSError:
        # Opening it next reports what is wrong.
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def require_journal(path: Path) -> None:
    """Raise unless `path` is a journal that this version can read."""
    if not path.exists() or _ask(path, "PRAGMA user_version") == 0:
        raise NotFoundError("this repository has no runs yet", hint=NO_RUN_HINT)
    _require_version(path)


def require_sound(path: Path) -> None:
    """Raise unless the file is a journal that this version can read, without damage."""
    _require_version(path)
    verdict = _ask(path, "PRAGMA quick_check(1)")
    if verdict != "ok":
        raise CorruptJournalError(f"the journal {path} is damaged ({verdict})", hint=_CORRUPT_HINT)


def _require_version(path: Path) -> None:
    version = _ask(path, "PRAGMA user_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise JournalError(
            f"{path} was written by a newer version of autopilot-multi (journal version {version})",
            hint="update autopilot-multi; the file was not touched.",
        )


def _ask(path: Path, pragma: str) -> object:
    # Asked through a read-only connection: a file that cannot be trusted must stay as it is.
    with contextlib.closing(connect_readonly(path)) as connection:
        try:
            return connection.execute(pragma).fetchone()[0]
        except sqlite3.Error as error:
            raise explain(path, error) from error


def damaged(path: Path, why: str) -> CorruptJournalError:
    """Return the error for a journal whose content cannot be trusted."""
    return CorruptJournalError(f"the journal {path} is damaged ({why})", hint=_CORRUPT_HINT)


def explain(path: Path, error: sqlite3.Error) -> JournalError:
    """Turn an error of SQLite into one of ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _UNTRUSTED:
        return damaged(path, str(error))
    match code:
        case sqlite3.SQLITE_FULL:
            return JournalError(
                f"no space left on the disk for the journal {path}",
                hint="free some space, then `autopilot-multi resume`; what was written before is intact.",
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return JournalError(
                f"the journal {path} is locked by another program",
                hint="close the program that has it open (a database browser?), then try again.",
            )
        case _:
            return _unusable(path, str(error))


def _unusable(path: Path, why: str) -> JournalError:
    return JournalError(
        f"cannot open the journal {path}: {why}",
        hint="check the permissions and the free space of its folder, then try again.",
    )


def _open(path: Path, mode: str) -> sqlite3.Connection:
    # Transactions are begun by hand, and the journal's own lock orders the threads.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None, check_same_thread=False
    )


def _probed(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Read once, since SQLite opens lazily."""
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _copied(path: Path) -> sqlite3.Connection:
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="autopilot-multi-journal-") as folder:
        copy = Path(folder) / path.name
        try:
            for suffix in ("", "-wal"):
                shutil.copyfile(_beside(path, suffix), _beside(copy, suffix))
        except OSError as error:
            raise sqlite3.OperationalError(error.strerror or str(error)) from error
        with contextlib.closing(_open(copy, "mode=rw")) as source:
            memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            source.backup(memory)
            return memory


def _set_aside(path: Path) -> Path:
    number = 1
    while any(_beside(path, f".corrupt-{number}{suffix}").exists() for suffix in _SIDECARS):
        number += 1
    kept = _beside(path, f".corrupt-{number}")
    for suffix in _SIDECARS:
        with contextlib.suppress(FileNotFoundError):
            _beside(path, suffix).rename(_beside(kept, suffix))
    return kept


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)

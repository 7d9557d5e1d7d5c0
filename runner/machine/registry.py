"""The live sessions of a repository family: one small file for each, with a heartbeat.

A session in any worktree of the repository writes its own file and no other, by a rename, so that any
number of them may write at the same time. An entry counts while its heartbeat is recent and its process,
where that can be checked, is alive. A file that cannot be read counts by its age, so nothing blocks forever.
Reading changes nothing; only `sweep` removes entries, and only those that are dead.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct, structs

from isolation.files.disk import replace_file
from isolation.files.lease import boot_id
from isolation.files.lookups import is_folder
from isolation.kernel.process_tree import load_stat
from isolation.paths import repository_hash, sessions_dir
from runner.core.text.amounts import MOST
from runner.core.text.instants import iso
from runner.core.text.names import one_line
from runner.core.text.screen import shorten

PEER_SECONDS = 15 * 60
"""An entry whose heartbeat is older no longer counts."""

SWEEP_SECONDS = 60 * 60
"""An entry that is older than this is removed, whatever its process does."""

UNKNOWN_MODE = "unknown"
SUFFIX = ".json"
_AHEAD = 5 * 60  # the clocks of several hosts never quite agree
_LARGEST = 64 << 10
_LONGEST_NAME = 180
_LONGEST_TEXT = 200


class SessionEntry(Struct, frozen=True, kw_only=True):
    """One live session. `pid` is the process that keeps it alive; 0 and empty texts are unknown.

    `flaw` says why the file could not be read; the entry is then a stand-in, as old as its file.
    """

    session_id: str
    mode: str
    heartbeat: float
    run_id: str = ""
    story_id: str = ""
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    host: str = ""
    repository: str = ""
    branch: str = ""
    flaw: str = ""

    @property
    def description(self) -> str:
        """The session in words."""
        story = f" of story {self.story_id}" if self.story_id else ""
        process = f"pid {self.pid}" if self.pid else "process unknown"
        where = f"{process} on {self.host}" if self.host else process
        branch = f", branch {self.branch}" if self.branch else ""
        return f"{self.mode} session {self.session_id}{story} ({where}{branch})"


class _Found(Struct, frozen=True, kw_only=True):
    path: Path
    entry: SessionEntry
    age: float


class Registry:
    """The sessions of one repository family, whichever worktree they are in."""

    def __init__(self, common_dir: Path) -> None:
        self._common_dir = common_dir
        self._folder = sessions_dir(common_dir)
        self._blank: SessionEntry | None = None

    def entry(
        self, name: str, *, mode: str, now: float, run_id: str = "", story_id: str = "", branch: str = ""
    ) -> SessionEntry:
        """Describe the session of that id, which lives as long as this process."""
        if self._blank is None:
            stat = load_stat(os.getpid())
            self._blank = SessionEntry(
                session_id="",
                mode="",
                heartbeat=0.0,
                pid=os.getpid(),
                start_ticks=stat.started if stat else 0,
                boot_id=boot_id(),
                host=os.uname().nodename,
                repository=repository_hash(self._common_dir),
            )
        return structs.replace(
            self._blank,
            session_id=name,
            mode=mode,
            heartbeat=now,
            run_id=run_id,
            story_id=story_id,
            branch=branch,
        )

    def active(self, now: float, *, but: str = "") -> tuple[SessionEntry, ...]:
        """Return the active sessions, except those of the run `but`; `OSError` when they cannot be listed."""
        boot = boot_id()
        young = [found.entry for found in self._found(now, but=but) if found.age <= PEER_SECONDS]
        return tuple(sorted((one for one in young if not _gone(one, boot)), key=lambda one: one.session_id))

    def write(self, entry: SessionEntry) -> None:
        """Write or renew an entry and keep fields that others added; refuse another session's file."""
        path = self._path(entry.session_id)
        if not is_folder(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        before = _load_values(path)
        if not _is_of(before, entry):
            raise FileExistsError(f"{path} belongs to another session")
        values = {**(before or {}), **_to_json(entry)}
        replace_file(path, json.dumps(values, indent=2).encode() + b"\n", durable=False)

    def withdraw(self, entry: SessionEntry) -> None:
        """Remove an entry; repeating it is harmless, and another session's file stays."""
        path = self._path(entry.session_id)
        if _is_of(_load_values(path), entry):
            path.unlink(missing_ok=True)

    def sweep(self, now: float) -> None:
        """Remove what is dead, and what a killed writer left half written.

        An entry is dead when its process has certainly ended; where that is unknown, when it is old.
        """
        for found in self._dead(now):
            # A session that wakes up just now loses its file, and writes it again with the next heartbeat.
            found.path.unlink(missing_ok=True)
        for path, modified in self._files(".tmp"):
            if abs(now - modified) > SWEEP_SECONDS:
                path.unlink(missing_ok=True)

    def dead(self, now: float) -> int:
        """Count the entries that `sweep` would remove."""
        return len(self._dead(now))

    def _dead(self, now: float) -> list[_Found]:
        boot = boot_id()
        return [one for one in self._found(now) if one.age > SWEEP_SECONDS or _gone(one.entry, boot)]

    def _path(self, session_id: str) -> Path:
        return self._folder / file_name(session_id)

    def _found(self, now: float, *, but: str = "") -> Iterator[_Found]:
        own = file_name(but).removesuffix(SUFFIX) if but else ""
        for path, modified in self._files(SUFFIX, but=own):
            try:
                entry = _from_json(_load(path), now)
            except FileNotFoundError:
                continue  # withdrawn in the meantime
            except (OSError, ValueError, RecursionError) as error:
                entry = _stand_in(path, modified, error)
            # A file from the future is as suspect as an old one.
            yield _Found(path=path, entry=entry, age=abs(now - entry.heartbeat))

    def _files(self, suffix: str, *, but: str = "") -> list[tuple[Path, float]]:
        """List the regular files with a suffix, except those whose names begin with `but`.

        Links, pipes and folders are no entries.
        """
        found = []
        try:
            with os.scandir(self._folder) as entries:
                for one in entries:
                    if but and one.name.startswith(but):
                        continue
                    if one.name.endswith(suffix) and one.is_file(follow_symlinks=False):
                        try:
                            found.append((Path(one.path), one.stat(follow_symlinks=False).st_mtime))
                        except FileNotFoundError:
                            continue
        except FileNotFoundError:
            return []
        return found


@lru_cache(maxsize=256)
def file_name(session_id: str) -> str:
    """Return the name of a session's file: a single path component, whatever the id contains."""
    name = quote(session_id, safe="", errors="surrogatepass")
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(session_id.encode(errors="surrogatepass")).hexdigest()[:16]
        name = f"{name[:_LONGEST_NAME]}-{digest}"
    return name + SUFFIX


def _load(path: Path) -> Any:
    """Read one file of limited size; raise ValueError when it is not JSON."""
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST >> 10} KB")
    return json.loads(data)


def _load_values(path: Path) -> dict[str, Any] | None:
    """Read the fields of a file; None when it is missing, or holds none."""
    try:
        values = _load(path)
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _is_of(values: dict[str, Any] | None, entry: SessionEntry) -> bool:
    """Return whether a file is free for an entry, or is its own from before a crash."""
    return values is None or (values.get("session_id"), values.get("run_id")) == (
        entry.session_id,
        entry.run_id,
    )


def _to_json(entry: SessionEntry) -> dict[str, Any]:
    values = structs.asdict(entry) | {"heartbeat": iso(entry.heartbeat)}
    del values["flaw"]
    return values


def _from_json(values: Any, now: float) -> SessionEntry:
    """Read an entry; raise ValueError, with what is missing, when it says too little."""
    if not isinstance(values, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  for the reader of the file it is a value
    for name in ("session_id", "mode", "heartbeat"):
        if not isinstance(values.get(name), str):
            raise ValueError(f"it has no text under {name}")  # noqa: TRY004  as above
    heartbeat = _instant(values["heartbeat"])
    if heartbeat > now + _AHEAD:
        raise ValueError("its heartbeat is in the future")
    return SessionEntry(
        session_id=_text(values, "session_id"),
        mode=_text(values, "mode"),
        heartbeat=heartbeat,
        run_id=_text(values, "run_id"),
        story_id=_text(values, "story_id"),
        pid=_number(values, "pid"),
        start_ticks=_number(values, "start_ticks"),
        boot_id=_text(values, "boot_id"),
        host=_text(values, "host"),
        repository=_text(values, "repository"),
        branch=_text(values, "branch"),
    )


def _instant(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError("its heartbeat is not a timestamp") from error


def _text(values: dict[str, Any], name: str) -> str:
    # Written by others, and shown on a terminal.
    value = values.get(name)
    return shorten(one_line(value), _LONGEST_TEXT) if isinstance(value, str) else ""


def _number(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    return value if type(value) is int and 0 < value <= MOST else 0


def _stand_in(path: Path, modified: float, error: Exception) -> SessionEntry:
    reason = (error.strerror or "unreadable") if isinstance(error, OSError) else str(error) or "unreadable"
    return SessionEntry(
        session_id=one_line(unquote(path.name.removesuffix(SUFFIX), errors="replace")),
        mode=UNKNOWN_MODE,
        heartbeat=modified,
        flaw=f"{path} cannot be read ({one_line(reason)}); it counts as a session of unknown mode",
    )


def _gone(entry: SessionEntry, boot: str) -> bool:
    """Return whether the process of an entry has certainly ended; on other hosts and boots it is unknown."""
    if not entry.pid or (entry.host, entry.boot_id) != (os.uname().nodename, boot):
        return False
    stat = load_stat(entry.pid)
    if stat is not None:
        return not stat.alive or entry.start_ticks not in {0, stat.started}
    try:
        os.kill(entry.pid, 0)  # only checks that it exists; no signal is sent
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False

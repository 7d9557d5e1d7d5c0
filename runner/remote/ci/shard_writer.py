"""Writes a shard, one job's part of a run: it appears complete under its name, or not at all.

Everything is written to a folder next to the target, flushed to disk, and renamed in one step. Values of
secret environment variables are removed from every text.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from isolation.files.disk import sync_folder
from isolation.git.bundles import commits_since, write_bundle
from isolation.git.diffstat import changes
from isolation.git.large_files.stored import stored_files
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir
from runner.core.errors import SystemFaultError
from runner.core.events.events import Event, encode
from runner.core.model import RunSnapshot, Story, StoryId, StorySnapshot
from runner.core.text.names import branch_of
from runner.core.text.redaction import Redactor
from runner.records import telemetry
from runner.records.session_record import session_record
from runner.records.shards.shard import (
    BACKLOG,
    BUNDLE,
    CHANGES,
    EVENTS,
    HANDED_ON,
    KIND,
    LARGE_FILES,
    LOGS,
    LOOPS,
    MANIFEST,
    PARTIAL,
    SCHEMA,
    SESSIONS,
    STATE,
    Shard,
    ShardError,
)
from runner.report.run_document import run_document

LOG_HEAD, LOG_TAIL = 256 << 10, 768 << 10
"""How many bytes of the beginning and of the end of a session's output a shard keeps."""


class ShardContent(Struct, frozen=True, kw_only=True):
    """What goes into a shard: the ended run, its events, the job's own stories, and the whole backlog.

    `handed_on` are shards of an earlier attempt whose stories did not have to run again.
    """

    repository: Repository
    run: RunSnapshot
    events: Sequence[Event]
    own: Sequence[StoryId]
    backlog: Sequence[Story]
    redactor: Redactor
    handed_on: Sequence[Shard] = ()


def require_free(out: Path) -> None:
    """Refuse a folder that is not empty, before a long run starts."""
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise ShardError(
            f"{out} already exists, and a shard never replaces anything",
            hint="name another folder, or remove it first.",
        )


def write_shard(out: Path, content: ShardContent) -> None:
    """Write the shard to `out`."""
    require_free(out)
    draft = out.with_name(f".{out.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")
    try:
        draft.mkdir(parents=True)
        _fill(draft, content)
        for folder, _, _ in os.walk(draft):
            sync_folder(Path(folder))
        draft.rename(out)
    except OSError as error:
        raise SystemFaultError(
            f"cannot write the shard {out}: {error.strerror or error}",
            hint="check the permissions and the free space there; the run itself is not affected.",
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    sync_folder(out.parent)


def _fill(draft: Path, content: ShardContent) -> None:
    run, redactor, repository = content.run, content.redactor, content.repository
    own = [run.stories[name] for name in content.own]
    files = _Files(draft)
    files.write(STATE, _json(redactor.value(run_document(run))))
    files.write(EVENTS, b"".join(_line(event, redactor) for event in content.events))
    loops = [telemetry.story_record(run, story, top=repository.top) for story in own]
    files.write(LOOPS, _lines([*loops, telemetry.run_record(run)], redactor))
    sessions = [(story, session) for story in own for session in story.sessions]
    records = [session_record(run, story, one, top=repository.top) for story, one in sessions]
    files.write(SESSIONS, _lines(records, redactor))
    backlog = [
        {"id": story.id, "title": story.title, "depends_on": list(story.depends_on)}
        for story in content.backlog
    ]
    files.write(BACKLOG, _json(backlog))
    files.write(CHANGES, _json({story.id: _changes(repository, story) for story in own}))
    for name in dict.fromkeys(session.log for _, session in sessions):
        with suppress(FileNotFoundError):
            log = bounded_log(autopilot_dir(repository.common_dir) / name)
            files.write(f"{LOGS}/{name}", redactor.data(log))
    branches = commits_since(repository, run.base, [branch_of(name) for name in content.own])
    if branches:
        write_bundle(repository, draft / BUNDLE, run.base, list(branches))
        files.add(BUNDLE)
        for name, path in stored_files(repository, run.base, list(branches.values())).items():
            files.copy(f"{LARGE_FILES}/{name}", path)
    manifest = {
        "kind": KIND,
        "schema": SCHEMA,
        "run_id": run.run_id,
        "base": run.base,
        "exit_code": run.exit_code,
        "stories": list(content.own),
        "branches": branches,
        "files": dict(files.entries),
    }
    files.write(MANIFEST, _json(manifest))
    for shard in content.handed_on:
        _copy(shard, draft / HANDED_ON / shard.run_id)


def bounded_log(path: Path) -> bytes:
    """Read a log; of a long one only the first and the last lines, and how much is missing between them."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= LOG_HEAD + LOG_TAIL:
            return file.read()
        head = file.read(LOG_HEAD)
        file.seek(size - LOG_TAIL)
        tail = file.read(LOG_TAIL)
    # Whole lines where there are any: half a line could be misread, and half a secret would not be noticed.
    head = head[: head.rfind(b"\n") + 1] or head
    tail = tail[tail.find(b"\n") + 1 :] or tail
    cut = size - len(head) - len(tail)
    return head + f"\n[autopilot-multi: {cut:,} of {size:,} bytes are left out here]\n\n".encode() + tail


def _copy(shard: Shard, target: Path) -> None:
    """Copy a shard with everything that its manifest names; it was checked when it was loaded."""
    for name in (*shard.files, MANIFEST):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(shard.path / name, path, follow_symlinks=False)
        with path.open("rb") as file:
            os.fsync(file.fileno())


class _Files:
    """Writes the files of a shard and records their sizes and digests."""

    def __init__(self, draft: Path) -> None:
        self._draft = draft
        self.entries: dict[str, dict[str, Any]] = {}

    def write(self, name: str, data: bytes) -> None:
        path = self._draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self.entries[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def copy(self, name: str, source: Path) -> None:
        path = self._draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
        self.add(name)

    def add(self, name: str) -> None:
        with (self._draft / name).open("rb") as file:
            os.fsync(file.fileno())
            found = hashlib.file_digest(file, "sha256").hexdigest()
            self.entries[name] = {"size": file.tell(), "sha256": found}


def _changes(repository: Repository, story: StorySnapshot) -> list[dict[str, Any]]:
    if not (story.workspace.base and story.workspace.commit):
        return []
    return [
        structs.asdict(change) for change in changes(repository, story.workspace.base, story.workspace.commit)
    ]


def _line(event: Event, redactor: Redactor) -> bytes:
    kind, data = encode(event.body)
    return _compact({"run_id": event.run_id, "at": event.at, "kind": kind, "data": redactor.value(data)})


def _lines(records: Sequence[Mapping[str, Any]], redactor: Redactor) -> bytes:
    return b"".join(_compact(redactor.value(dict(record))) for record in records)


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=True).encode() + b"\n"

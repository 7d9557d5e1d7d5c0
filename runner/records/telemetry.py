"""The two record files: one line per story loop and run, one line per session.

Builders are pure. Writers hold a lock file beside the records, keep every line that is not
theirs byte for byte, and replace the file as a whole, so that a reader or a kill finds either the old
file or the new one. Readers take no lock and skip what is not a record.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from isolation.paths import RepositoryPaths
from isolation.patterns import pattern
from runner.core.errors import SystemFaultError
from runner.core.events.fold import EXIT_DONE, EXIT_WAITING
from runner.core.limits.budget import Spending
from runner.core.limits.kill_switches import ORDERLY, STEP_SESSIONS, Switch
from runner.core.model import (
    KillSwitch,
    Outcome,
    RunSnapshot,
    SessionKind,
    Status,
    StorySnapshot,
    Usage,
)
from runner.core.outlook.left import Sample
from runner.core.outlook.past import past_samples
from runner.core.past_runs import newest_first, past_runs, past_spending
from runner.core.text.instants import elapsed_seconds, iso_or_none
from runner.records.learnings import KEY as LEARNING_KEY
from runner.records.learnings import learnings_file, learnings_of
from runner.records.session_record import loop_id, relative_path, session_record

SCHEMA_VERSION = 1
LOOP_KEY = ("autopilot_run_id", "kind")
SESSION_KEY = ("session_id",)
BACKLOG_DONE = "backlog-done"
INTERRUPTED = "interrupted"

_OPTIONS = ("max_sessions", "max_hours", "confidence_threshold", "host_class", "resource_verdict_at_start")
_LOOPS, _SESSIONS = "autopilot.jsonl", "sessions.jsonl"
_OWN = pattern(
    rb'\{"schema_version":\d+,"autopilot_run_id":"([\w.-]+)(?:/[^"]*)?","kind":"(?:'
    rb'story","parent_run_id":"\1"|'
    rb'run","parent_run_id":null,"story_id":null,"started_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)")'
)
"""The beginning of a line as this program writes it: whose story it is, or when a run began."""
_TRIES = 20
_NEWEST = 500
"""How many session records say what the next session will spend."""
_RUNS = 20
"""How many runs say how long a story takes."""


def story_record(run: RunSnapshot, story: StorySnapshot, *, top: Path) -> dict[str, Any]:
    """Build the line of one story's loop. `top` is the repository that paths are relative to."""
    switch = story.kill_switch
    return {
        "schema_version": SCHEMA_VERSION,
        "autopilot_run_id": loop_id(run, story),
        "kind": "story",
        "parent_run_id": run.run_id,
        "story_id": story.id,
        **_times(story.started_at, story.ended_at),
        "waited_seconds": None if story.started_at is None else round(story.waited, 3),
        **_options(run),
        **_switch(switch),
        "iterations_completed": _completed(story),
        "sessions": [session.id for session in story.sessions],
        "fallback_to_manual": story.status is Status.PARKED,
        **_spent(story.usage),
        "worktree_path": relative_path(story.workspace.path, top),
        "branch": story.workspace.branch,
        "commit": story.workspace.commit,
        "stall_recovery_count": _stalls(story),
        "spiral_recovery_count": _spirals(story),
        "blocked_by": list(story.blocked_by),
        "aborted_by_cohort": switch is not None and switch.name == Switch.COHORT,
        "verdict": story.status.value,
    }


def run_record(run: RunSnapshot) -> dict[str, Any]:
    """Build the run's own line; its counts are those of its stories' lines."""
    switch = run.kill_switch
    stories, counts = run.stories.values(), run.counts
    cohort = any(story.kill_switch and story.kill_switch.name == Switch.COHORT for story in stories)
    return {
        "schema_version": SCHEMA_VERSION,
        "autopilot_run_id": run.run_id,
        "kind": "run",
        "parent_run_id": None,
        "story_id": None,
        **_times(run.started_at, run.ended_at),
        "waited_seconds": None,
        **_options(run),
        **_switch(switch),
        "iterations_completed": sum(_completed(story) for story in stories),
        "sessions": [session.id for story in stories for session in story.sessions],
        "fallback_to_manual": run.count(Status.PARKED) > 0,
        **_spent(run.usage),
        "worktree_path": None,
        "branch": None,
        "commit": None,
        "stall_recovery_count": sum(_stalls(story) for story in stories),
        "spiral_recovery_count": sum(_spirals(story) for story in stories),
        "blocked_by": [],
        "aborted_by_cohort": cohort,
        "verdict": _verdict(run),
        "child_run_ids": [loop_id(run, story) for story in stories],
        "stop_reason": _stop_reason(run),
        "story_count": len(run.stories),
        "counts": {status.value: counts[status] for status in Status},
        "cohort_aborted": cohort,
        "kill_detail": switch.detail if switch else None,
    }


def records_checkout(paths: RepositoryPaths) -> Path:
    """Return the checkout that keeps the records for all worktrees of the repository."""
    return paths.main_checkout or paths.top


def write_run(run: RunSnapshot, checkout: Path) -> None:
    """Write all records of a run below the main checkout; a second time replaces the first."""
    stories = run.stories.values()
    loops = [story_record(run, story, top=checkout) for story in stories]
    sessions = [
        session_record(run, story, session, top=checkout) for story in stories for session in story.sessions
    ]
    upsert(_metrics(checkout) / _LOOPS, [*loops, run_record(run)], LOOP_KEY)
    upsert(_metrics(checkout) / _SESSIONS, sessions, SESSION_KEY)
    learnings = learnings_of(run)
    if learnings:
        upsert(learnings_file(checkout), learnings, LEARNING_KEY)


def load_loops(checkout: Path) -> list[dict[str, Any]]:
    """Read the records of all runs and stories, oldest line first, no matter which program wrote them."""
    return [record for record in map(_parsed, _loop_lines(checkout)) if record]


def load_newest_loops(checkout: Path, most: int) -> tuple[list[Mapping[str, Any]], int]:
    """Read the records of the newest runs, at `most` so many, and of their stories; count all runs.

    The file keeps every run there ever was, so the stories of older runs are not even parsed.
    """
    path = _metrics(checkout) / _LOOPS
    try:
        with path.open("rb") as file:
            return _newest_loops(file, most)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise _unreadable(path, error) from error


def _newest_loops(file: BinaryIO, most: int) -> tuple[list[Mapping[str, Any]], int]:
    stories: list[tuple[bytes, int]] = []  # where its line begins: most of them are not looked at again
    own: dict[bytes, tuple[bytes, int]] = {}
    others: list[dict[str, Any]] = []
    at = 0
    for line in file:
        if not (found := _OWN.match(line)):
            others.append(_parsed(line))
        elif begun := found[2]:
            own[found[1]] = (begun, at)
        else:
            stories.append((found[1], at))
        at += len(line)

    def read(place: int) -> dict[str, Any]:
        file.seek(place)
        return _parsed(file.readline())

    # Times of one form are in the order of their texts, so that older runs need not be parsed, either.
    newest = sorted(own, key=lambda name: (own[name][0], name), reverse=True)[:most]
    # A loop that a run of ours has started is a part of that run.
    left = [
        record
        for record in others
        if record.get("kind") == "story" or _text(record.get("parent_run_id")) not in own
    ]
    runs = newest_first([*left, *(read(own[name][1]) for name in newest)])
    shown = dict(islice(runs.items(), most))
    foreign = (record for record in left if record.get("kind") == "story")  # not in our own form
    names = {name.encode() for name in shown}
    mine = (read(place) for name, place in stories if name in names)
    return [*shown.values(), *foreign, *mine], len(runs) + len(own) - len(newest)


def _text(value: object) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b""


def _loop_lines(checkout: Path) -> list[bytes]:
    path = _metrics(checkout) / _LOOPS
    try:
        return _lines(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> SystemFaultError:
    return SystemFaultError(
        f"cannot read the records in {path}: {error.strerror or error}",
        hint="check the permissions there.",
    )


def load_spending(checkout: Path) -> tuple[Spending, ...]:
    """Read what the newest work sessions of earlier runs have spent; nothing if that cannot be read.

    An estimate is no reason to fail: without it, the agents' usual amounts count.
    """
    try:
        lines = _lines(_metrics(checkout) / _SESSIONS)
    except OSError:
        return ()
    records = map(_parsed, lines[-_NEWEST:])
    return tuple(past_spending(record for record in records if record))


def load_samples(checkout: Path) -> tuple[Sample, ...]:
    """Read what the done stories of the newest runs took; nothing if that cannot be read.

    What is left of a run is an estimate, and no reason to fail, either.
    """
    try:
        loops, _ = load_newest_loops(checkout, _RUNS)
        sessions = [_parsed(line) for line in _lines(_metrics(checkout) / _SESSIONS)[-_NEWEST:]]
    except (OSError, SystemFaultError):
        return ()
    return past_samples(past_runs(loops), sessions)


def upsert(path: Path, records: Sequence[Mapping[str, Any]], key: Sequence[str]) -> None:
    """Write records so that each key is in the file once; all other lines stay as they are.

    A line that is replaced keeps its position, and the fields that other programs have added to it.
    """
    with _locked(path):
        for _ in range(_TRIES):
            before = _stamp(path)
            draft = _write_draft(path, _merged(_lines(path), records, key))
            if _stamp(path) == before:
                break
            # A program that ignores the lock has added a line meanwhile; it must not get lost.
        draft.replace(path)


def _merged(lines: Sequence[bytes], records: Sequence[Mapping[str, Any]], key: Sequence[str]) -> list[bytes]:
    new = {tuple(record[name] for name in key): record for record in records}
    merged = []
    for line in lines:
        old = _parsed(line)
        found = tuple(str(old.get(name)) for name in key)
        merged.append(_line({**old, **new.pop(found)}) if found in new else line)
    return [*merged, *(_line(record) for record in new.values())]


def _metrics(checkout: Path) -> Path:
    return checkout / ".orchestrator" / "metrics"


def _times(started: float | None, ended: float | None) -> dict[str, Any]:
    seconds = elapsed_seconds(started, ended)
    return {
        "started_at": iso_or_none(started),
        "completed_at": iso_or_none(ended),
        "duration_seconds": None if seconds is None else round(seconds, 3),
    }


def _options(run: RunSnapshot) -> dict[str, Any]:
    options = {name: run.options.get(name) for name in _OPTIONS}
    return {"dry_run": run.dry_run, **options, "max_sessions": options["max_sessions"] or STEP_SESSIONS}


def _stop_reason(run: RunSnapshot) -> str:
    """Return why the run ended: its kill-switch, or what stopped its stories; an orderly end comes last."""
    if run.kill_switch is not None:
        return run.kill_switch.name
    if not run.ended:
        return INTERRUPTED
    stopped = {story.kill_switch.name for story in run.stories.values() if story.kill_switch}
    ranked = sorted(Switch, key=lambda switch: switch in ORDERLY)
    return next((str(switch) for switch in ranked if switch in stopped), BACKLOG_DONE)


def _verdict(run: RunSnapshot) -> str | None:
    """Return the verdict on the whole run; nothing failed where it waits for an answer or a resume."""
    match run.exit_code:
        case None:
            return None
        case code if code == EXIT_DONE:
            return Status.DONE.value
        case code if code == EXIT_WAITING:
            return (Status.PARKED if run.count(Status.PARKED) else Status.STOPPED).value
        case _:
            return Status.FAILED.value


def _switch(switch: KillSwitch | None) -> dict[str, Any]:
    return {
        "kill_switch": switch.name if switch else None,
        "kill_switch_detail": switch.detail if switch else None,
    }


def _spent(usage: Usage) -> dict[str, Any]:
    return {
        "total_tokens_used": usage.tokens,
        "total_cost_usd": usage.cost_usd,
        "cost_estimated": usage.estimated,
    }


def _completed(story: StorySnapshot) -> int:
    cut_short = {None, Outcome.STOPPED, Outcome.STALLED}
    return sum(
        1 for item in story.sessions if item.kind is SessionKind.WORK and item.outcome not in cut_short
    )


def _stalls(story: StorySnapshot) -> int:
    """Count the silences that the story survived, in the same session or by a later one."""
    ended = sum(1 for session in story.sessions[-1:] if session.outcome is Outcome.STALLED)
    return max(0, story.stalls - ended)


def _spirals(story: StorySnapshot) -> int:
    """Count the spirals that the story survived."""
    ended = story.kill_switch is not None and story.kill_switch.name == Switch.SPIRAL
    return max(0, story.spirals - ended)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Be the only writer. The lock file stays: if it were removed, two processes could hold the lock."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise SystemFaultError(
            f"cannot write the records in {path}: {error.strerror or error}",
            hint="check the permissions and the free space there; the run's journal is not affected.",
        ) from error


def _lines(path: Path) -> list[bytes]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    # Not `splitlines`: a lone carriage return in another's line is theirs to keep.
    return content.removesuffix(b"\n").split(b"\n") if content else []


def _parsed(line: bytes) -> dict[str, Any]:
    """Parse a line; one that is not a record has no fields."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            # Much slower, and knows what other programs write although JSON has no such thing, as NaN.
            value = json.loads(line)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _stamp(path: Path) -> tuple[int, ...]:
    """Return a value that changes whenever a file is written to or replaced."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return ()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def _write_draft(path: Path, lines: Sequence[bytes]) -> Path:
    # The lock admits one writer, so a half-written file of a killed one is simply overwritten.
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("wb") as file:
        file.writelines(line + b"\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    return draft

"""What one job of a CI pipeline leaves for the others: its part of the run, in a folder that says what it is.

A shard holds the state document, the events, the records, the logs, what was changed, and the commits
as a git bundle. `shard.json` is written last and names every file with its checksum: a folder without
it is no shard, and one whose files differ from it is refused. Shards come from other machines, so
nothing in them is trusted: everything is checked when a shard is loaded, before any of it is used.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.errors import RunnerError
from runner.core.events.base import BaseCheckStarted
from runner.core.events.events import (
    Event,
    RunEnded,
    RunStarted,
    SessionStarted,
    StoryFinished,
    UnknownEventError,
    decode,
)
from runner.core.events.fold import fold
from runner.core.events.story_json import from_json
from runner.core.model import RunId, Story, StoryId
from runner.core.text.amounts import MOST, amount
from runner.core.text.names import branch_of, id_problem
from runner.records.shards.files import (
    Entry,
    TornError,
    branches_in_bundle,
    read_checked,
    read_small,
    require_intact,
    safe_name,
)

MANIFEST = "shard.json"
KIND = "autopilot-multi shard"
SCHEMA = 1
STATE, EVENTS, CHANGES, BACKLOG = "state.json", "events.ndjson", "changes.json", "backlog.json"
LOOPS, SESSIONS = "records/autopilot.jsonl", "records/sessions.jsonl"
BUNDLE = "commits.bundle"
LOGS = "logs"
LARGE_FILES = "lfs"
"""The folder of files that git-lfs stores beside git, each named by the digest of its content."""

HANDED_ON = "handed-on"
"""The folder of shards of an earlier attempt that a job passes on, instead of running their stories again."""

PARTIAL = ".partial"
_NOT_SEARCHED = frozenset({".git", ".venv", "node_modules", "__pycache__"})
_RUN_ID = pattern(r"[0-9A-Za-z][0-9A-Za-z-]{0,99}")
_COMMIT = pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_IMPOSSIBLE = f"{EVENTS} has an impossible number"
_LATEST = 1e11  # in the year 5138
_SPENT = frozenset({"input_tokens", "output_tokens", "cached_tokens", "cost_usd"})
_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError)
"""What reading a file of the wrong content may raise."""


class ShardError(RunnerError):
    """A shard is damaged, or does not belong to the others."""

    code = "shard"


class Shard(Struct, frozen=True, kw_only=True):
    """One job's part. `stories` are its own, `branches` the tips that its bundle holds."""

    path: Path
    run_id: RunId
    base: str
    stories: tuple[StoryId, ...]
    branches: Mapping[str, str]
    files: Mapping[str, Entry]
    events: tuple[Event, ...]

    @property
    def started(self) -> RunStarted:
        """The plan of the job."""
        return next(event.body for event in self.events if isinstance(event.body, RunStarted))

    @property
    def ended_at(self) -> float:
        """When the job's run ended."""
        return self.events[-1].at

    @property
    def exit_code(self) -> int | None:
        """How the job's run ended; None when it was cut off."""
        codes = [event.body.exit_code for event in self.events if isinstance(event.body, RunEnded)]
        return codes[-1] if codes else None

    @property
    def verdicts(self) -> dict[StoryId, StoryFinished]:
        """The newest result of every story that the job knows of."""
        bodies = (event.body for event in self.events)
        return {body.story_id: body for body in bodies if isinstance(body, StoryFinished)}

    def digest_of(self, story_id: StoryId) -> str | None:
        """Return the digest of a story's work in that job."""
        digests = self.started.options.get("digests")
        return digests.get(story_id) if isinstance(digests, Mapping) else None

    @property
    def large_files(self) -> tuple[Path, ...]:
        """The files that git-lfs stores beside git; checked when the shard was loaded."""
        place = self.path.resolve()
        return tuple(place / name for name in self.files if name.startswith(f"{LARGE_FILES}/"))

    def read(self, name: str) -> bytes:
        """Read one of its files and check it; a file that the shard lacks is empty."""
        entry = self.files.get(name)
        if entry is None:
            return b""
        try:
            return read_checked(self.path, name, entry)
        except ValueError as error:
            raise damaged(self.path, str(error)) from error


class Torn(Struct, frozen=True, kw_only=True):
    """A shard that has lost something, but says which run it was; `problem` is what is wrong with it."""

    run_id: RunId
    base: str
    stories: tuple[StoryId, ...]
    problem: str


class Found(Struct, frozen=True, kw_only=True):
    """The shards below some folders: those that can be used, and what is wrong with the others.

    Of some of the others it is known which run they were: these are `torn`.
    """

    shards: tuple[Shard, ...] = ()
    problems: tuple[str, ...] = ()
    torn: tuple[Torn, ...] = ()


def find_shards(path: Path) -> Iterator[Path]:
    """Find the shards at and below a folder, in order; links to folders are not followed.

    A folder that has the other files of a shard counts as one, so that a lost or torn manifest is noticed.
    """
    for inside, folders, files in os.walk(path):
        is_shard = (MANIFEST in files and _is_manifest(Path(inside, MANIFEST))) or {STATE, EVENTS} <= {*files}
        if is_shard:
            yield Path(inside)
        folders[:] = sorted(
            name
            for name in folders
            if name not in _NOT_SEARCHED and not name.startswith(".") and (name == HANDED_ON or not is_shard)
        )


def _is_manifest(path: Path) -> bool:
    """Return whether a file of that name is a manifest of ours, by its first bytes."""
    try:
        with path.open("rb") as file:
            return KIND.encode() in file.read(len(KIND) + 64)
    except OSError:
        return False


def load_shards(paths: Sequence[Path]) -> Found:
    """Read every shard at and below these folders; the same folder twice counts once.

    A damaged shard is a problem and hides no other one.
    """
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        if not path.is_dir():
            raise ShardError(
                f"no folder {path} to read shards from",
                hint="name the folder that holds the artifacts of the jobs.",
            )
        for one in find_shards(path):
            there = one.stat()
            found.setdefault((there.st_dev, there.st_ino), one)
    shards, problems, torn = [], [], []
    sound: set[str] = set()
    for path in found.values():
        try:
            shards.append(load_shard(path, sound))
        except ShardError as error:
            problems.append(f"{error.message}; {error.hint}")
            if isinstance(error.__cause__, TornError):
                torn += _torn(path, problems[-1])
    return Found(shards=tuple(shards), problems=tuple(problems), torn=tuple(torn))


def _torn(path: Path, problem: str) -> list[Torn]:
    """Return what the manifest of a torn shard says of it; nothing if that cannot be read either."""
    try:
        manifest = _manifest(path)
        stories = tuple(StoryId(str(name)) for name in manifest["stories"])
        run_id = RunId(_matching(_RUN_ID, manifest["run_id"], "a run"))
        return [Torn(run_id=run_id, base=str(manifest["base"]), stories=stories, problem=problem)]
    except (ShardError, *_WRONG):
        return []


def load_shard(path: Path, sound: set[str] | None = None) -> Shard:
    """Read one shard and check all of it.

    `sound` are digests of backlogs whose content is known to be right; that of this shard is added. Each job
    hands over the backlog of the whole run.
    """
    manifest = _manifest(path)
    try:
        shard = _shard(path, manifest)
        _require_sound(shard, set() if sound is None else sound)
    except UnknownEventError as error:
        raise ShardError(
            f"{path} holds an event '{error}', which a newer version of autopilot-multi wrote",
            hint="use the same version in all jobs.",
        ) from error
    except ValueError as error:
        raise damaged(path, str(error)) from error
    except _WRONG as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    return shard


def backlog_of(shards: Iterable[Shard]) -> dict[StoryId, Mapping[str, Any]]:
    """Return the backlog of the whole run; a list that several shards hold is read once."""
    found: dict[StoryId, Mapping[str, Any]] = {}
    seen: set[str] = set()
    for shard in shards:
        entry = shard.files.get(BACKLOG)
        if entry is not None and entry.sha256 not in seen:
            seen.add(entry.sha256)
            found |= _backlog(shard)
    return found


def changes_of(shard: Shard) -> dict[StoryId, list[tuple[str, int | None, int | None]]]:
    """Return the paths that each story changed, with the lines that it added and removed."""
    loaded = json.loads(shard.read(CHANGES) or b"{}")
    return {
        StoryId(name): [(str(one["path"]), _lines(one["added"]), _lines(one["removed"])) for one in entries]
        for name, entries in loaded.items()
    }


def damaged(path: Path, what: str) -> ShardError:
    """Return the error for a shard that cannot be used."""
    return ShardError(
        f"the shard {path} is damaged: {what}",
        hint="fetch its artifact again, or run its job again.",
    )


def _manifest(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(read_small(path, MANIFEST))
    except (RecursionError, ValueError) as error:
        raise damaged(path, f"{MANIFEST}: {error}") from error
    if not isinstance(loaded, dict) or loaded.get("schema") != SCHEMA:
        raise ShardError(
            f"{path} has an unknown format; this version reads format {SCHEMA}",
            hint="use the same version of autopilot-multi in all jobs.",
        )
    return loaded


def _shard(path: Path, manifest: Mapping[str, Any]) -> Shard:
    files = {
        safe_name(name): Entry(size=_size(entry["size"]), sha256=str(entry["sha256"]))
        for name, entry in manifest["files"].items()
    }
    shard = Shard(
        path=path,
        run_id=RunId(_matching(_RUN_ID, manifest["run_id"], "a run")),
        base=_matching(_COMMIT, manifest["base"], "a base commit"),
        stories=tuple(StoryId(str(name)) for name in manifest["stories"]),
        branches={str(name): str(tip) for name, tip in manifest["branches"].items()},
        files=files,
        events=_events(read_checked(path, EVENTS, files[EVENTS])),
    )
    shard.started  # noqa: B018  a shard needs its plan
    return shard


def _require_sound(shard: Shard, sound: set[str]) -> None:
    """Check everything that later steps rely on."""
    planned = {str(_planned(entry).id) for entry in shard.started.stories}
    for name in (*shard.stories, *planned):
        if problem := id_problem(name):
            raise ValueError(f"a story cannot be called {name!r}: {problem}")
    for name in shard.stories:
        if name not in planned:
            raise ValueError(f"its run has no story {name}")
    own = {branch_of(name) for name in shard.stories}
    for branch, tip in shard.branches.items():
        _matching(_COMMIT, tip, "a commit")
        if branch not in own:
            raise ValueError(f"the branch {branch!r} does not belong to its stories")
    _require_intact(shard, sound)
    _require_large_files(shard)
    _require_bundle(shard)
    if any(event.run_id != shard.run_id for event in shard.events):
        raise ValueError(f"{EVENTS} has events of another run")
    if any(not (math.isfinite(event.at) and 0 <= event.at < _LATEST) for event in shard.events):
        raise ValueError(f"{EVENTS} has an event at an impossible time")
    _require_own_logs(shard)
    _require_one_repository(shard)
    fold(shard.run_id, shard.events)


def _require_intact(shard: Shard, sound: set[str]) -> None:
    """Check that each file is what was written, and the content of those that are parsed."""
    for name, entry in shard.files.items():
        if name == EVENTS:
            continue  # read and checked before all others
        if name == CHANGES:
            changes_of(shard)
        elif name == BACKLOG and entry.sha256 not in sound:
            _backlog(shard)
            sound.add(entry.sha256)
        else:
            require_intact(shard.path, name, entry)


def _require_one_repository(shard: Shard) -> None:
    if shard.started.repos:
        raise ValueError("its run had stories in several repositories, which shards do not carry")


def _require_large_files(shard: Shard) -> None:
    for name, entry in shard.files.items():
        if name.startswith(f"{LARGE_FILES}/") and name != f"{LARGE_FILES}/{entry.sha256}":
            raise ValueError(f"{name} is not named by the digest of its content")


def _planned(entry: Mapping[str, Any]) -> Story:
    """Read a story of the plan; raise ValueError for limits that no story can have."""
    story = from_json({"prompt": "", **entry})
    for limit in (story.estimate, story.max_attempts, story.story_minutes, story.verify_minutes):
        if limit is not None and not amount(limit):
            raise ValueError(f"story {story.id} has an impossible limit: {limit!r:.40}")
    return story


def _require_own_logs(shard: Shard) -> None:
    """Check that logs are files of the run: a report shows how each of them ends."""
    for event in shard.events:
        if isinstance(event.body, SessionStarted | BaseCheckStarted) and event.body.log:
            safe_name(event.body.log)


def _require_bundle(shard: Shard) -> None:
    """Check that the bundle holds the branches that the manifest names, and nothing else."""
    if BUNDLE not in shard.files:
        if shard.branches:
            raise ValueError(f"{BUNDLE} is missing, so there are no commits for {', '.join(shard.branches)}")
        return
    held = branches_in_bundle(shard.path, BUNDLE)
    for branch in held.keys() | shard.branches.keys():
        if held.get(branch) != shard.branches.get(branch):
            raise ValueError(f"{BUNDLE} and {MANIFEST} disagree about the branch {branch!r}")


def _backlog(shard: Shard) -> dict[StoryId, Mapping[str, Any]]:
    found: dict[StoryId, Mapping[str, Any]] = {}
    for story in json.loads(shard.read(BACKLOG) or b"[]"):
        name = str(story["id"])
        if problem := id_problem(name):
            raise ValueError(f"{BACKLOG}: a story cannot be called {name!r}: {problem}")
        if not isinstance(story["title"], str) or not all(
            isinstance(one, str) for one in story["depends_on"]
        ):
            raise ValueError(f"{BACKLOG}: story {name} has a title or dependencies that are not text")
        found[StoryId(name)] = story
    return found


def _events(data: bytes) -> tuple[Event, ...]:
    """Read the events in one go: a list is parsed much faster than many lines."""
    entries = b"[" + data.removesuffix(b"\n").replace(b"\n", b",") + b"]"
    lines = _POSSIBLE.decode(entries.decode("utf-8", "surrogatepass"))
    return tuple(
        Event(run_id=RunId(line["run_id"]), at=float(line["at"]), body=decode(line["kind"], line["data"]))
        for line in lines
    )


def _with_possible_amounts(values: dict[str, Any]) -> dict[str, Any]:
    """Return an object; raise ValueError for amounts that would break a budget or a report."""
    for name in () if _SPENT.isdisjoint(values) else _SPENT & values.keys():
        if values[name] is not None and amount(values[name]) is None:
            raise ValueError(f"{EVENTS}: {values[name]!r:.40} is not a possible amount of {name}")
    return values


def _whole(digits: str) -> int:
    number = int(digits)
    if not -MOST <= number <= MOST:
        raise ValueError(_IMPOSSIBLE)
    return number


def _fraction(digits: str) -> float:
    number = float(digits)
    if not -MOST <= number <= MOST:
        raise ValueError(_IMPOSSIBLE)
    return number


_POSSIBLE = json.JSONDecoder(
    object_hook=_with_possible_amounts, parse_int=_whole, parse_float=_fraction, parse_constant=_fraction
)
"""Reads JSON and refuses numbers that would break a budget, a schedule or a report.

Looking at all values afterwards takes as long again.
"""


def _matching(form: re.Pattern[str], value: object, what: str) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError(f"{value!r} is not the name of {what}")
    return value


def _size(value: object) -> int:
    if not isinstance(value, int) or amount(value) is None:
        raise ValueError(f"{value!r:.40} is not the size of a file")
    return value


def _lines(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or amount(value) is None):
        raise ValueError(f"{CHANGES}: {value!r:.40} is not a number of lines")
    return value

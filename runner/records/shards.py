"""What one job of a CI pipeline leaves for the others: its part of the run, in a folder that says what it is.

A shard holds the state document, the events, the records, the logs, what was changed, and the commits
as a git bundle. `shard.json` is written last and names every file with its checksum: a folder without
it is no shard, and one whose files differ from it is refused. Shards come from other machines, so
nothing in them is trusted with a path.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from runner.core.errors import NotFoundError, RunnerError
from runner.core.events.events import Event, RunEnded, RunStarted, StoryFinished, UnknownEventError, decode
from runner.core.events.story_json import digest
from runner.core.model import RunId, Status, Story, StoryId

MANIFEST = "shard.json"
KIND = "autopilot-multi shard"
SCHEMA = 1
STATE, EVENTS, CHANGES, BACKLOG = "state.json", "events.ndjson", "changes.json", "backlog.json"
LOOPS, SESSIONS = "records/autopilot.jsonl", "records/sessions.jsonl"
BUNDLE = "commits.bundle"
LOGS = "logs"
PARTIAL = ".partial"
_NOT_SEARCHED = frozenset({".git", ".venv", "node_modules", "__pycache__"})
_UNFINISHED = frozenset({Status.FAILED, Status.SKIPPED})
_RESUMABLE = frozenset({Status.STOPPED, Status.PARKED, Status.SKIPPED})
NO_SHARD = "its job left no shard"


class ShardError(RunnerError):
    """A shard is damaged, or does not belong to the others."""

    code = "shard"


class Entry(Struct, frozen=True, kw_only=True):
    """One file of a shard according to its manifest."""

    size: int
    sha256: str


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

    def read(self, name: str) -> bytes:
        """Read one of its files and check it; a file that the shard lacks is empty."""
        entry = self.files.get(name)
        return b"" if entry is None else _checked(self.path, name, entry)


def find_shards(path: Path) -> Iterator[Path]:
    """Find the shards at and below a folder, in order; links to folders are not followed."""
    for inside, folders, files in os.walk(path):
        if MANIFEST in files and _is_manifest(Path(inside, MANIFEST)):
            folders.clear()
            yield Path(inside)
        folders[:] = sorted(
            name for name in folders if name not in _NOT_SEARCHED and not name.startswith(".")
        )


def _is_manifest(path: Path) -> bool:
    """Return whether a file of that name is a manifest of ours, by its first bytes."""
    try:
        with path.open("rb") as file:
            return KIND.encode() in file.read(len(KIND) + 64)
    except OSError:
        return False


def load_shards(paths: Sequence[Path]) -> tuple[Shard, ...]:
    """Read every shard at and below these folders; the same folder twice counts once."""
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
    return tuple(load_shard(path) for path in found.values())


def load_shard(path: Path) -> Shard:
    """Read one shard: its manifest and its events."""
    manifest = _manifest(path)
    try:
        files = {
            _safe(name): Entry(size=int(entry["size"]), sha256=str(entry["sha256"]))
            for name, entry in manifest["files"].items()
        }
        run_id = RunId(str(manifest["run_id"]))
        shard = Shard(
            path=path,
            run_id=run_id,
            base=str(manifest["base"]),
            stories=tuple(StoryId(str(name)) for name in manifest["stories"]),
            branches={str(name): str(tip) for name, tip in manifest["branches"].items()},
            files=files,
            events=_events(_checked(path, EVENTS, files[EVENTS])),
        )
        shard.started  # noqa: B018  a shard needs its plan
    except UnknownEventError as error:
        raise ShardError(
            f"{path} holds an event '{error}', which a newer version of autopilot-multi wrote",
            hint="use the same version in all jobs.",
        ) from error
    except (AttributeError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    return shard


def backlog_of(shards: Iterable[Shard]) -> dict[StoryId, Mapping[str, Any]]:
    """Return the backlog of the whole run; a list that several shards hold is read once."""
    found: dict[StoryId, Mapping[str, Any]] = {}
    seen: set[str] = set()
    for shard in shards:
        entry = shard.files.get(BACKLOG)
        if entry is None or entry.sha256 in seen:
            continue
        seen.add(entry.sha256)
        try:
            found |= {StoryId(str(story["id"])): story for story in json.loads(shard.read(BACKLOG))}
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(shard.path, f"{BACKLOG}: {error}") from error
    return found


def newest(shards: Iterable[Shard]) -> dict[StoryId, Shard]:
    """Return the shard that counts for every story: a job that ran again replaces what it left before."""
    found: dict[StoryId, Shard] = {}
    for shard in sorted(shards, key=lambda shard: (shard.ended_at, shard.run_id)):
        found.update(dict.fromkeys(shard.stories, shard))
    return found


def unfinished_in(shards: Sequence[Shard]) -> tuple[StoryId, ...]:
    """Return the stories that failed in these shards, and those that were skipped because of them."""
    found = tuple(
        name
        for name, shard in newest(shards).items()
        if name in shard.verdicts and shard.verdicts[name].verdict in _UNFINISHED
    )
    if not found:
        raise NotFoundError("no story failed in these shards", hint="`autopilot-multi aggregate` shows them.")
    return found


def results_in(
    shards: Sequence[Shard], stories: Iterable[Story], *, base: str, rerun_unfinished: bool
) -> dict[StoryId, StoryFinished]:
    """Return the results that other jobs have for `stories`.

    With `rerun_unfinished`, stories that they left unfinished are left out, so that they run; without it, a
    story that no shard has counts as stopped.
    """
    sources = newest(shards)
    results: dict[StoryId, StoryFinished] = {}
    for story in stories:
        shard = sources.get(story.id)
        if shard is None or story.id not in shard.verdicts:
            if not rerun_unfinished:
                results[story.id] = StoryFinished(story_id=story.id, verdict=Status.STOPPED, reason=NO_SHARD)
            continue
        _require_same(shard, story, base)
        verdict = shard.verdicts[story.id]
        if not (rerun_unfinished and verdict.verdict in _RESUMABLE):
            results[story.id] = verdict
    return results


def _require_same(shard: Shard, story: Story, base: str) -> None:
    if shard.base != base:
        raise ShardError(
            f"{shard.path} starts from commit {shard.base[:12]}, and this run from {base[:12]}",
            hint="all jobs must check out the same commit; `--base` names it.",
        )
    if shard.digest_of(story.id) != digest(story):
        raise ShardError(
            f"{shard.path} holds another story '{story.id}' than this backlog",
            hint="all jobs must use the same backlog; run the older one again.",
        )


def _manifest(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(path, f"{MANIFEST}: {error}") from error
    if not isinstance(loaded, dict) or loaded.get("schema") != SCHEMA:
        raise ShardError(
            f"{path} has an unknown format; this version reads format {SCHEMA}",
            hint="use the same version of autopilot-multi in all jobs.",
        )
    return loaded


def _events(data: bytes) -> tuple[Event, ...]:
    """Read the events in one go: a list is parsed much faster than many lines."""
    lines = data.removesuffix(b"\n").replace(b"\n", b",")
    return tuple(
        Event(run_id=RunId(line["run_id"]), at=float(line["at"]), body=decode(line["kind"], line["data"]))
        for line in json.loads(b"[" + lines + b"]")
    )


def _checked(path: Path, name: str, entry: Entry) -> bytes:
    place = path / name
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read()
    except OSError as error:
        raise _damaged(path, f"{name} cannot be read: {error.strerror}") from error
    if len(data) != entry.size or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise _damaged(path, f"{name} differs from the file that was written")
    return data


def _safe(name: str) -> str:
    """Refuse what would lead out of the shard, or out of the folder it is copied to."""
    if name.startswith("/") or ".." in name.split("/") or "\\" in name or not name.isprintable():
        raise ValueError(f"a file cannot be called {name!r}")
    return name


def _damaged(path: Path, what: str) -> ShardError:
    return ShardError(
        f"the shard {path} is damaged: {what}",
        hint="fetch its artifact again, or run its job again.",
    )

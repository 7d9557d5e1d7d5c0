"""What earlier pipelines have shown about stories, by which the jobs of the next one are balanced.

The records of a pipeline are in its shards. The job that joins them collects them in one file, which a CI
system can keep in a cache.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from isolation.git.repository import Repository
from runner.core.errors import SystemFaultError
from runner.core.limits.budget import Amount
from runner.core.model import StoryId
from runner.core.text.amounts import amount
from runner.records.shards.shard import LOOPS, Shard, load_shards
from runner.records.telemetry import load_loops, records_checkout, upsert

_KEY = ("story_id", "kind")


class Records(Struct, frozen=True, kw_only=True):
    """How long each story took last time, and the most that a session spent, as far as that is known."""

    seconds: Mapping[StoryId, float] = field(default_factory=dict)
    session: Amount = Amount()


def repository_records(repository: Repository) -> Records:
    """Return what the runs of this repository have shown."""
    return _records(load_loops(records_checkout(repository.paths)))


def load_records(paths: Sequence[Path]) -> Records | None:
    """Read files of records and the records in shards; None if nothing is named."""
    if not paths:
        return None
    records: list[dict[str, Any]] = []
    for path in paths:
        if path.is_dir():
            records += _of_shards(load_shards([path]).shards)
        elif path.exists():  # the first pipeline has no cache yet
            records += _parsed(_read(path))
    return _records(records)


def collect_records(path: Path, shards: Iterable[Shard]) -> None:
    """Add the records of shards to a file; the newest of a story replaces its older ones."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        upsert(path, [record for record in _of_shards(shards) if _is_story(record)], _KEY)
    except OSError as error:
        raise SystemFaultError(
            f"cannot write the records to {path}: {error.strerror or error}",
            hint="check the permissions of its folder.",
        ) from error


def _records(records: Iterable[Mapping[str, Any]]) -> Records:
    seconds: dict[StoryId, float] = {}
    spent: dict[str, list[float]] = {"total_cost_usd": [], "total_tokens_used": []}
    for record in filter(_is_story, records):
        took, sessions = (amount(record.get(name)) for name in ("duration_seconds", "iterations_completed"))
        if took is not None:
            seconds[StoryId(record["story_id"])] = float(took)
        for name, seen in spent.items():
            if (value := amount(record.get(name))) is not None:
                seen.append(value / max(1.0, sessions or 1.0))
    cost, tokens = (max(seen, default=None) for seen in spent.values())
    return Records(seconds=seconds, session=Amount(tokens=tokens, cost=cost))


def _is_story(record: Mapping[str, Any]) -> bool:
    return record.get("kind") == "story" and isinstance(record.get("story_id"), str)


def _of_shards(shards: Iterable[Shard]) -> list[dict[str, Any]]:
    ordered = sorted(shards, key=lambda shard: shard.ended_at)
    return [record for shard in ordered for record in _parsed(shard.read(LOOPS))]


def _parsed(data: bytes) -> list[dict[str, Any]]:
    """Return the records in a file; lines that are none are passed over, since they only balance jobs."""
    found = []
    for line in data.splitlines():
        try:
            record = json.loads(line)
        except (RecursionError, ValueError):
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SystemFaultError(
            f"cannot read the records in {path}: {error.strerror}", hint="check the permissions there."
        ) from error

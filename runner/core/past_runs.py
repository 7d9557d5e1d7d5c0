"""Past runs as their records describe them: the result of each, and their totals.

Other programs write to the same file, and newer versions write more. A field that is unknown or has the wrong
type counts as missing; a record is a run if it has an id and a start, no matter which program wrote it. Other
programs know no stories: one loop of sessions is one run, and several loops have a record in common.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from runner.core.limits.budget import Amount, Kind, Spending
from runner.core.limits.kill_switches import ORDERLY
from runner.core.model import SessionKind, Status
from runner.core.text.amounts import amount, whole_amount
from runner.core.text.instants import elapsed_seconds, from_iso

COORDINATOR = "multi-story-coordinator"
"""The kind of a record in which another program sums up several loops."""


class PastStory(Struct, frozen=True, kw_only=True):
    """One story in one run; None is unknown."""

    run_id: str
    id: str
    verdict: str
    started_at: float | None = None
    ended_at: float | None = None
    seconds: float | None = None
    sessions: int = 0
    tokens: int | None = None
    cost_usd: float | None = None
    kill_switch: str | None = None

    @property
    def kills(self) -> Counter[str]:
        """Count the kill-switch that ended it, unless that was an orderly end."""
        return _kills([self.kill_switch])


class PastRun(Struct, frozen=True, kw_only=True):
    """One run and its stories; None is unknown. `sessions` is only known of a run without stories."""

    id: str
    started_at: float | None = None
    ended_at: float | None = None
    seconds: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    tokens: int | None = None
    cost_usd: float | None = None
    stop_reason: str | None = None
    kill_switch: str | None = None
    sessions: int | None = None
    stories: tuple[PastStory, ...] = ()

    @property
    def kills(self) -> Counter[str]:
        """Count kill-switches: once for the run, and once for each story that another one ended."""
        # A run's switch also ends its stories; counting it once for each would drown the others.
        own = (story.kill_switch for story in self.stories if story.kill_switch != self.kill_switch)
        return _kills([self.kill_switch, *own])

    @property
    def success_rate(self) -> float | None:
        """The share of the started stories that are done."""
        return _success(self.stories)


class Summary(Struct, frozen=True, kw_only=True):
    """The totals of several runs, or of one story in several runs."""

    runs: int
    started: int
    done: int
    success_rate: float | None
    median_seconds: float | None
    tokens: int | None
    cost_usd: float | None
    kills: Mapping[str, int]


def past_runs(records: Sequence[Mapping[str, Any]]) -> tuple[PastRun, ...]:
    """Return the runs in the records, newest first."""
    stories: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in records:
        parent = _text(record, "parent_run_id")
        if record.get("kind") == "story" and parent is not None and isinstance(record.get("story_id"), str):
            stories.setdefault(parent, {})[record["story_id"]] = record
    return tuple(
        _run(name, record, stories.get(name, {})) if _is_run(record) else _loop(name, record)
        for name, record in newest_first(records).items()
    )


def newest_first(records: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the record of each run by its id, newest first."""
    runs: dict[str, Mapping[str, Any]] = {}
    loops: dict[str, Mapping[str, Any]] = {}
    begun: dict[str, float] = {}
    for record in records:
        kind = _text(record, "kind")
        run_id = _text(record, "run_id" if kind == COORDINATOR else "autopilot_run_id")
        at = None if run_id is None or kind == "story" else _instant(record, "started_at")
        if run_id is not None and at is not None:
            (runs if _is_run(record) else loops)[run_id] = record
            begun[run_id] = at
    # A loop that a listed run has started is a part of that run.
    alone = {name: loop for name, loop in loops.items() if _text(loop, "parent_run_id") not in runs}
    listed = {**alone, **runs}
    return {name: listed[name] for name in sorted(listed, key=lambda name: (begun[name], name), reverse=True)}


def _is_run(record: Mapping[str, Any]) -> bool:
    return _text(record, "kind") in {"run", COORDINATOR}


def past_spending(records: Iterable[Mapping[str, Any]]) -> list[Spending]:
    """Return what the work sessions among session records have spent, oldest first."""
    return [
        Spending(
            kind=Kind(
                agent=_text(record, "agent_identity") or "",
                model=_text(record, "model") or "",
                step=_text(record, "step") or "",
            ),
            amount=Amount(tokens=_number(record, "total_tokens"), cost=_number(record, "cost_usd")),
        )
        for record in records
        if _is_work(record)
    ]


def _is_work(record: Mapping[str, Any]) -> bool:
    """Return whether a record is of a work session that has ended."""
    if "session_kind" not in record:  # written by an older version, or by another program
        return record.get("session_type") == SessionKind.WORK and record.get("completed_at") is not None
    return record["session_kind"] == SessionKind.WORK and record.get("outcome") != "running"


def of_story(runs: Iterable[PastRun], story_id: str) -> tuple[PastStory, ...]:
    """Return one story's part of each run that contained it, in the order of the runs."""
    return tuple(story for run in runs for story in run.stories if story.id == story_id)


def summary(runs: Sequence[PastRun]) -> Summary:
    """Add up runs."""
    return _summary([story for run in runs for story in run.stories], runs)


def summary_of_story(parts: Sequence[PastStory]) -> Summary:
    """Add up one story's parts of several runs."""
    return _summary(parts, parts)


def _summary(stories: Sequence[PastStory], spenders: Sequence[PastRun] | Sequence[PastStory]) -> Summary:
    from statistics import median  # `plan` loads this module for its durations alone

    started = [story for story in stories if story.started_at is not None]
    times = [story.seconds for story in started if story.seconds is not None]
    tokens = [one.tokens for one in spenders if one.tokens is not None]
    costs = [one.cost_usd for one in spenders if one.cost_usd is not None]
    return Summary(
        runs=len(spenders),
        started=len(started),
        done=sum(1 for story in started if story.verdict == Status.DONE),
        success_rate=_success(stories),
        median_seconds=round(median(times), 3) if times else None,
        tokens=sum(tokens) if tokens else None,
        cost_usd=round(sum(costs), 6) if costs else None,
        kills=sum((one.kills for one in spenders), Counter()),
    )


def _success(stories: Iterable[PastStory]) -> float | None:
    """Return the success rate without stories that never started: skipped, or done by an earlier run."""
    verdicts = [story.verdict for story in stories if story.started_at is not None]
    return round(verdicts.count(Status.DONE) / len(verdicts), 4) if verdicts else None


def _kills(names: Iterable[str | None]) -> Counter[str]:
    return Counter(name for name in names if name is not None and name not in ORDERLY)


def _run(run_id: str, record: Mapping[str, Any], stories: Mapping[str, Mapping[str, Any]]) -> PastRun:
    counts = record.get("counts")
    known = counts if isinstance(counts, dict) else {}
    if record.get("kind") == COORDINATOR:
        known = {Status.DONE: record.get("completed_count"), Status.FAILED: record.get("failed_count")}
    ended = _instant(record, "completed_at") or _instant(record, "ended_at")
    seconds = _number(record, "duration_seconds")
    return PastRun(
        id=run_id,
        started_at=_instant(record, "started_at"),
        ended_at=ended,
        seconds=amount(elapsed_seconds(_instant(record, "started_at"), ended))
        if seconds is None
        else seconds,
        counts={name: found for name in Status if (found := whole_amount(known.get(name))) is not None},
        tokens=_whole(record, "total_tokens_used"),
        cost_usd=_number(record, "total_cost_usd"),
        stop_reason=_text(record, "stop_reason"),
        kill_switch=_text(record, "kill_switch"),
        stories=tuple(_story(story, run_id) for story in stories.values()),
    )


def _loop(run_id: str, record: Mapping[str, Any]) -> PastRun:
    """Return the one loop of sessions that another program has recorded."""
    manual = "fallback-to-manual" if record.get("fallback_to_manual") is True else None
    return replace(
        _run(run_id, record, {}),
        stop_reason=_text(record, "stop_reason") or _text(record, "kill_switch") or manual,
        sessions=_whole(record, "iterations_completed"),
    )


def _story(record: Mapping[str, Any], run_id: str) -> PastStory:
    sessions = record.get("sessions")
    return PastStory(
        run_id=run_id,
        id=record["story_id"],
        verdict=_text(record, "verdict") or "",
        started_at=_instant(record, "started_at"),
        ended_at=_instant(record, "completed_at"),
        seconds=_worked(record),
        sessions=len(sessions) if isinstance(sessions, list) else 0,
        tokens=_whole(record, "total_tokens_used"),
        cost_usd=_number(record, "total_cost_usd"),
        kill_switch=_text(record, "kill_switch"),
    )


def _worked(record: Mapping[str, Any]) -> float | None:
    took = _number(record, "duration_seconds")
    return None if took is None else max(0.0, took - (_number(record, "waited_seconds") or 0.0))


def _text(record: Mapping[str, Any], name: str) -> str | None:
    value = record.get(name)
    return value if isinstance(value, str) else None


def _number(record: Mapping[str, Any], name: str) -> float | None:
    found = amount(record.get(name))
    return None if found is None else float(found)


def _whole(record: Mapping[str, Any], name: str) -> int | None:
    return whole_amount(record.get(name))


def _instant(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    return from_iso(value) if isinstance(value, str) else None

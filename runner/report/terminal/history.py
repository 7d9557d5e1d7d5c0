"""Past runs as text and as JSON: one row per run, and their totals below."""

from collections.abc import Mapping, Sequence
from typing import Any

from runner.core.limits.kill_switches import Switch
from runner.core.model import Status
from runner.core.past_runs import PastRun, PastStory, Summary
from runner.core.text.instants import date_and_time, iso_or_none, span
from runner.core.text.screen import neutral
from runner.core.text.words import SYMBOLS, count, label
from runner.report.terminal.table import Cell, Column, Look, layout

_UNKNOWN = "-"
_WIDE_FROM = 140
_WIDE_ONLY = frozenset({"STARTED", "TOKENS", "ENDED BY"})
_FIRST = (Column(title="RUN", limit=24), Column(title="STARTED"), Column(title="TIME", right=True))
_SPENT = (Column(title="TOKENS", right=True), Column(title="COST", right=True))


def runs_document(runs: Sequence[PastRun], total: Summary) -> dict[str, Any]:
    """Return runs and their totals as JSON values."""
    rows = [
        {
            "run_id": run.id,
            **_times(run),
            "counts": {status.value: run.counts.get(status, 0) for status in Status},
            "success_rate": run.success_rate,
            **_spent(run),
            "stop_reason": run.stop_reason,
            "sessions": run.sessions,
            "kill_switches": dict(run.kills),
        }
        for run in runs
    ]
    return {"runs": rows, "summary": _summary_document(total)}


def story_document(story_id: str, parts: Sequence[PastStory], total: Summary) -> dict[str, Any]:
    """Return one story's part of several runs and their totals as JSON values."""
    rows = [
        {
            "run_id": part.run_id,
            **_times(part),
            "verdict": part.verdict,
            "sessions": part.sessions,
            **_spent(part),
            "kill_switch": part.kill_switch,
        }
        for part in parts
    ]
    return {"story_id": story_id, "loops": rows, "summary": _summary_document(total)}


def runs_text(runs: Sequence[PastRun], total: Summary, *, left_out: int, look: Look) -> str:
    """Return runs as text, newest first."""
    columns = [
        *_FIRST,
        Column(title="SUCCESS", right=True),
        *_SPENT,
        Column(title="ENDED BY", limit=28),
        Column(title="STORIES"),
    ]
    rows = [
        [
            *_beginning(run.id, run.started_at, run.seconds),
            Cell(text=_share(run.success_rate), color=_mood(run.success_rate)),
            *_spending(run),
            Cell(text=neutral(_ending(run)), color="yellow" if run.kills else "dim"),
            Cell(text=_tally(run.counts) if run.sessions is None else count(run.sessions, "session")),
        ]
        for run in runs
    ]
    newest = [_ending(run) for run in runs[:1]]
    return _text(columns, rows, total, left_out=left_out, look=look, ended_by=newest)


def story_text(parts: Sequence[PastStory], total: Summary, *, left_out: int, look: Look) -> str:
    """Return one story's part of several runs as text, newest first."""
    columns = [
        *_FIRST,
        Column(title="SESSIONS", right=True),
        *_SPENT,
        Column(title="ENDED BY", limit=28),
        Column(title="VERDICT"),
    ]
    rows = [
        [
            *_beginning(part.run_id, part.started_at, part.seconds),
            Cell(text=str(part.sessions)),
            *_spending(part),
            Cell(text=neutral(part.kill_switch or ""), color="yellow"),
            Cell(text=neutral(part.verdict.replace("_", " ")), color=_mood(part.verdict == Status.DONE)),
        ]
        for part in parts
    ]
    newest = [part.kill_switch or "" for part in parts[:1]]
    return _text(columns, rows, total, left_out=left_out, look=look, ended_by=newest)


def _text(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    total: Summary,
    *,
    left_out: int,
    look: Look,
    ended_by: Sequence[str],
) -> str:
    """Lay out the table, without columns that a narrow terminal has no room for, and add the totals.

    `ended_by` is what the newest row says: what to do about it is said below, since that may still be open.
    """
    narrow = look.width is not None and look.width < _WIDE_FROM
    kept = [place for place, column in enumerate(columns) if not (narrow and column.title in _WIDE_ONLY)]
    table = layout([columns[place] for place in kept], [[row[place] for place in kept] for row in rows], look)
    hints = [
        line
        for switch in Switch
        if any(switch in words.replace(",", " ").split() for words in ended_by)
        for line in look.wrapped(f"hint: {switch}: {switch.hint}")
    ]
    return "\n".join([*table, "", *_summary_lines(total, look), *hints, *_older(left_out)]) + "\n"


def _times(one: PastRun | PastStory) -> dict[str, Any]:
    return {
        "started_at": iso_or_none(one.started_at),
        "ended_at": iso_or_none(one.ended_at),
        "duration_seconds": one.seconds,
    }


def _spent(one: PastRun | PastStory | Summary) -> dict[str, Any]:
    return {"tokens": one.tokens, "cost_usd": one.cost_usd}


def _summary_document(total: Summary) -> dict[str, Any]:
    return {
        "runs": total.runs,
        "stories_started": total.started,
        "stories_done": total.done,
        "success_rate": total.success_rate,
        "median_story_seconds": total.median_seconds,
        **_spent(total),
        "kill_switches": dict(total.kills),
    }


def _beginning(run_id: str, started_at: float | None, seconds: float | None) -> list[Cell]:
    return [
        Cell(text=neutral(run_id), color="bold"),
        Cell(text=_UNKNOWN if started_at is None else date_and_time(started_at)),
        Cell(text=_UNKNOWN if seconds is None else span(seconds)),
    ]


def _spending(one: PastRun | PastStory) -> list[Cell]:
    return [Cell(text=_tokens(one.tokens)), Cell(text=_cost(one.cost_usd))]


def _tally(counts: Mapping[str, int]) -> str:
    parts = [f"{counts[status]} {label(status)}" for status in SYMBOLS if counts.get(status)]
    return ", ".join(parts) or _UNKNOWN


def _ending(run: PastRun) -> str:
    return _listed(run.kills) or run.stop_reason or ""


def _listed(kills: Mapping[str, int]) -> str:
    ranked = sorted(kills.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(name if number == 1 else f"{name} ({number})" for name, number in ranked)


def _summary_lines(total: Summary, look: Look) -> list[str]:
    runs, stories = count(total.runs, "run"), count(total.started, "story", "stories")
    head = f"{runs}: {total.done} of {stories} done ({_share(total.success_rate)})"
    facts = []
    if total.median_seconds is not None:
        facts.append(f"median time per story {span(total.median_seconds)}")
    if total.tokens is not None:
        facts.append(f"{_tokens(total.tokens)} tokens")
    if total.cost_usd is not None:
        facts.append(_cost(total.cost_usd))
    lines = look.wrapped(head, color="bold")
    lines += look.wrapped(" · ".join(facts)) if facts else []
    return lines + look.wrapped(f"kill-switches: {neutral(_listed(total.kills)) or 'none'}")


def _older(left_out: int) -> list[str]:
    return [f"{count(left_out, 'older run')} not shown; use --limit to show more."] if left_out else []


def _share(rate: float | None) -> str:
    return _UNKNOWN if rate is None else f"{rate:.0%}".replace("%", " %")


def _tokens(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _cost(number: float | None) -> str:
    return _UNKNOWN if number is None else f"${number:,.2f}"


def _mood(rate: float | None) -> str:
    """Return the color of a complete success or a complete failure."""
    return {1.0: "green", 0.0: "red"}.get(-1.0 if rate is None else float(rate), "")

"""The rich dialect: no flow, lettered steps, and five sections of history after the current step."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from runner.flows.state.dialects.sections import bullets_of, new_section, write_bullets
from runner.flows.state.model import CompletedRow, LastSession, RetryRow, StateFile
from runner.flows.state.text.block import Location, set_value
from runner.flows.state.text.codec import (
    decode_text,
    encode_row,
    encode_scalar,
)
from runner.flows.state.text.edits import Edit, apply, insert_after
from runner.flows.state.text.layout import Key, keys, visible
from runner.flows.state.text.listing import change, read_table, table_rows

TEMPLATE = """\
# Autopilot State

## Current Step
step: 0
name: Problem
status: not_started
sub_step: 0
retry_count: 0

## Completed Steps

| Step | Name | Completed | Key Outcome |
|------|------|-----------|-------------|

## Key Decisions
- none

## Last Session
date:
ended_at:
reason:
notes:

## Retry Log

| Attempt | Step | Name | SubStep | Failure Reason | Timestamp |
|---------|------|------|---------|----------------|-----------|

## Blockers
- none
"""

COMPLETED = "completed steps"
DECISIONS = "key decisions"
SESSION = "last session"
RETRIES = "retry log"
BLOCKERS = "blockers"

SECTIONS = {
    COMPLETED: "Completed Steps",
    DECISIONS: "Key Decisions",
    SESSION: "Last Session",
    RETRIES: "Retry Log",
    BLOCKERS: "Blockers",
}
HEADERS = {
    COMPLETED: ("Step", "Name", "Completed", "Key Outcome"),
    RETRIES: ("Attempt", "Step", "Name", "SubStep", "Failure Reason", "Timestamp"),
}
_WIDTHS = {title: len(cells) for title, cells in HEADERS.items()}
_FIRST = {title: cells[0].lower() for title, cells in HEADERS.items()}
SESSION_KEYS = ("date", "ended_at", "reason", "notes")


REFERENCE = "step ↔ substep reference"
_REFERENCE_HEAD = ("Step", "Name", "Artifacts")


class History(Struct, frozen=True):
    """What the five sections hold."""

    completed: tuple[CompletedRow, ...] = ()
    decisions: tuple[str, ...] = ()
    last_session: LastSession | None = None
    retry_log: tuple[RetryRow, ...] = ()
    blockers: tuple[str, ...] = ()


def with_reference(text: str, steps: Sequence[tuple[str, str, str]]) -> str:
    """Add the table of a flow's steps to a new file: number, name, artifacts. It is for readers only."""
    if not steps:
        return text
    lines = [encode_row(_REFERENCE_HEAD), _rule(_REFERENCE_HEAD), *map(encode_row, steps)]
    table = "\n".join(lines)
    place = f"## {SECTIONS[COMPLETED]}\n"
    return text.replace(place, f"## Step ↔ SubStep Reference\n\n{table}\n\n{place}", 1)


def without_reference(text: str, location: Location) -> str:
    """Return a text without that table; a section in which somebody wrote more stays."""
    section = location.sections.get(REFERENCE)
    lines = section.body.of(text).splitlines() if section else []
    if section is None or any(line.strip()[:1] not in {"", "|"} for line in lines):
        return text
    return text[: section.start] + text[section.end :]


def read_history(text: str, location: Location) -> History:
    """Read the sections that exist."""
    known = location.sections
    session = _session_keys(text, location) if SESSION in known else {}
    return History(
        completed=tuple(map(completed_row, _rows(text, location, COMPLETED))),
        decisions=bullets_of(text, location, DECISIONS),
        last_session=_last_session(session),
        retry_log=tuple(map(retry_row, _rows(text, location, RETRIES))),
        blockers=bullets_of(text, location, BLOCKERS),
    )


def _rows(text: str, location: Location, title: str) -> list[tuple[str, ...]]:
    section = location.sections.get(title)
    if section is None:
        return []
    return table_rows(text, section, location.hidden, _FIRST[title])


def completed_row(cells: tuple[str, ...]) -> CompletedRow:
    """Turn cells into a row; missing cells are empty, extra ones stay in the text only."""
    step, name, completed, outcome = _fitted(cells, COMPLETED)
    return CompletedRow(step=step, name=name, completed=completed, outcome=outcome)


def retry_row(cells: tuple[str, ...]) -> RetryRow:
    """Turn cells into a row, as above."""
    attempt, step, name, sub_step, reason, timestamp = _fitted(cells, RETRIES)
    return RetryRow(
        attempt=attempt, step=step, name=name, sub_step=sub_step, reason=reason, timestamp=timestamp
    )


def _fitted(cells: tuple[str, ...], title: str) -> tuple[str, ...]:
    width = _WIDTHS[title]
    return cells if len(cells) == width else (cells + ("",) * width)[:width]


def _session_keys(text: str, location: Location) -> dict[str, Key]:
    found: dict[str, Key] = {}
    body = location.sections[SESSION].body
    for span in visible(body, location.hidden) if location.hidden else (body,):
        for key in keys(text, span):
            if key.name in SESSION_KEYS:
                found.setdefault(key.name, key)
    return found


def _last_session(found: dict[str, Key]) -> LastSession | None:
    values = {}
    for name, key in found.items():
        scalar = decode_text(key.raw)
        values[name] = "" if scalar.placeholder else scalar.value
    return LastSession(**values) if any(values.values()) else None


def write_history(text: str, old: StateFile, new: StateFile, find: Callable[[str], Location]) -> str:
    """Change the sections whose values differ; `find` locates the sections in each version of the text."""
    if old.completed != new.completed:
        rows = [(row.step, row.name, row.completed, row.outcome) for row in new.completed]
        text = _write_table(text, find(text), COMPLETED, rows)
    if old.decisions != new.decisions:
        text = write_bullets(text, find(text), DECISIONS, new.decisions, SECTIONS)
    if old.last_session != new.last_session:
        text = _write_session(text, find(text), new.last_session or LastSession())
    if old.retry_log != new.retry_log:
        log = [
            (row.attempt, row.step, row.name, row.sub_step, row.reason, row.timestamp)
            for row in new.retry_log
        ]
        text = _write_table(text, find(text), RETRIES, log)
    if old.blockers != new.blockers:
        text = write_bullets(text, find(text), BLOCKERS, new.blockers, SECTIONS)
    return text


def _write_table(text: str, location: Location, title: str, rows: Sequence[tuple[str, ...]]) -> str:
    lines = [encode_row(row) for row in rows]
    head = table_head(title)
    section = location.sections.get(title)
    if section is None:
        return apply(text, [new_section(text, location, title, ["", *head, *lines], SECTIONS)])
    listing = read_table(text, section, location.hidden, _FIRST[title])
    if not listing.headed and not listing.items:
        return apply(text, [insert_after(text, section.start, ["", *head, *lines])])
    fitted = [replace(item, value=_fitted(item.value, title)) for item in listing.items]
    same = replace(listing, items=fitted)
    return apply(text, change(text, same, rows, lines, empty=""))


def table_head(title: str) -> list[str]:
    """Return the lines above a table's rows."""
    header = HEADERS[title]
    return [encode_row(header), _rule(header)]


def _rule(header: tuple[str, ...]) -> str:
    return "|" + "|".join("-" * (len(cell) + 2) for cell in header) + "|"


def _write_session(text: str, location: Location, new: LastSession) -> str:
    wanted = {
        "date": new.date,
        "ended_at": new.ended_at,
        "reason": new.reason,
        "notes": new.notes,
    }
    section = location.sections.get(SESSION)
    if section is None:
        lines = [f"{name}: {encode_scalar(value)}".rstrip(" ") for name, value in wanted.items()]
        return apply(text, [new_section(text, location, SESSION, lines, SECTIONS)])
    found = _session_keys(text, location)
    edits: list[Edit] = []
    missing: list[str] = []
    for name, value in wanted.items():
        if name not in found:
            missing.append(f"{name}: {encode_scalar(value)}".rstrip(" "))
            continue
        key = found[name]
        scalar = decode_text(key.raw)
        if scalar.value != value or scalar.placeholder:
            edits.append(set_value(text, key, scalar, encode_scalar(value)))
    if missing:
        last = max((key.line for key in found.values()), default=section.start)
        edits.append(insert_after(text, last, missing))
    return apply(text, edits)

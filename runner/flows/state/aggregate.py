"""One page about many stories: what needs attention first, then the position of every story.

The page is rewritten as a whole each time; nothing is ever read back from it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from runner.core.text.names import one_line
from runner.flows.state.disk.collection import Found
from runner.flows.state.model import Phase, RetryRow, StateFile, StepStatus
from runner.flows.state.text.codec import encode_row

_Value = TypeVar("_Value")

TITLE = "# State of all stories"


class Row(Struct, frozen=True, kw_only=True):
    """One story: its file, and from the journal what its dialect has no section for."""

    story: str
    found: Found
    open_decisions: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    retries: tuple[RetryRow, ...] = ()
    decisions: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()

    @property
    def state(self) -> StateFile | None:
        """The state, if the file could be read."""
        return self.found.state

    def all_blockers(self) -> tuple[str, ...]:
        """Return what blocks the story: noted blockers, a step out of retries, or an unreadable file."""
        state = self.state
        if state is None:
            return (f"the state file {self.found.problem}", *self.blockers)
        known = _once(state.blockers, self.blockers)
        if not known and state.status is StepStatus.FAILED:
            known = (f"step {state.step} ({state.name}) failed with retry_count {state.retry_count}",)
        return known

    def all_retries(self) -> tuple[RetryRow, ...]:
        """Return the failed attempts at the current step."""
        return _once(self.state.retry_log if self.state else (), self.retries)

    def all_decisions(self) -> tuple[str, ...]:
        """Return the decisions of the user."""
        return _once(self.state.decisions if self.state else (), self.decisions)


def aggregate_markdown(rows: Iterable[Row], *, updated: str = "") -> str:
    """Return the page: blockers, open decisions, waits and retry logs, then one table of all stories."""
    stories = list(rows)
    parts = [TITLE, ""]
    if updated:
        parts += [f"Updated {one_line(updated)}.", ""]
    parts += _bullets("Blockers", [(row.story, row.all_blockers()) for row in stories])
    parts += _bullets("Open decisions", [(row.story, row.open_decisions) for row in stories])
    parts += _bullets("Waiting", [(row.story, row.waits) for row in stories])
    parts += _retries(stories)
    parts += _stories(stories)
    parts += _bullets("Decisions", [(row.story, row.all_decisions()) for row in stories])
    return "\n".join(parts).rstrip("\n") + "\n"


def state_json(found: Found) -> dict[str, Any]:
    """Return a file's state as the commands print it in JSON; every dialect has the same keys."""
    state = found.state
    if state is None:
        return {"path": str(found.path), "problem": found.problem}
    sub_step = state.sub_step
    structured = (
        {"phase": sub_step.phase, "name": sub_step.name, "detail": sub_step.detail}
        if isinstance(sub_step, Phase)
        else None
        if sub_step is None
        else {"number": sub_step.number, "name": sub_step.name}
    )
    session = state.last_session
    return {
        "path": str(found.path),
        "dialect": state.dialect.value,
        "flow": state.flow,
        "step": state.step,
        "name": state.name,
        "status": state.status.value,
        "sub_step": structured,
        "retry_count": state.retry_count,
        "cycle": state.cycle,
        "tracker": state.tracker.value if state.tracker else None,
        "completed": [_fields(row) for row in state.completed],
        "decisions": list(state.decisions),
        "last_session": _fields(session) if session else None,
        "retry_log": [_fields(row) for row in state.retry_log],
        "blockers": list(state.blockers),
        "skipped_steps": list(state.skipped_steps),
        "problems": [str(problem) for problem in state.problems],
    }


def _fields(value: Any) -> dict[str, str]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _once(one: tuple[_Value, ...], other: tuple[_Value, ...]) -> tuple[_Value, ...]:
    return tuple(dict.fromkeys((*one, *other))) if one and other else one or other


def _bullets(title: str, entries: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    lines = [one_line(f"- **{story}**: {text}") for story, texts in entries for text in texts]
    return [f"## {title}", "", *lines, ""] if lines else []


def _retries(rows: Sequence[Row]) -> list[str]:
    log = [_line((row.story, *_fields(entry).values())) for row in rows for entry in row.all_retries()]
    if not log:
        return []
    header = ("Story", "Attempt", "Step", "Name", "SubStep", "Failure reason", "Timestamp")
    return ["## Retry log", "", *_head(header), *log, ""]


def _stories(rows: Sequence[Row]) -> list[str]:
    header = ("Story", "Dialect", "Flow", "Step", "Name", "Status", "SubStep", "Retries", "Cycle", "File")
    return ["## Stories", "", *_head(header), *(_story(row) for row in rows), ""]


def _story(row: Row) -> str:
    state, path = row.state, str(row.found.path)
    if state is None:
        return _line((row.story, "?", "", "", "", "unreadable", "", "", "", path))
    cells = (
        row.story,
        state.dialect.value,
        state.flow or "",
        state.step,
        state.name,
        state.status.value,
        str(state.sub_step or ""),
        str(state.retry_count),
        str(state.cycle or ""),
        path,
    )
    return _line(cells)


def _line(cells: tuple[str, ...]) -> str:
    """Return a table's line; characters that could break the table or a terminal are removed."""
    line = "| " + " | ".join(cells) + " |"
    if line.isprintable() and line.count("|") == len(cells) + 1:
        return line
    return encode_row(tuple(one_line(cell) for cell in cells))


def _head(titles: tuple[str, ...]) -> list[str]:
    return [encode_row(titles), "|" + "|".join("-" * (len(title) + 2) for title in titles) + "|"]

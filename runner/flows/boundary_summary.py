"""What a step has produced, in a few lines for the question at its session boundary.

A step that decomposes work leaves one file per task, `<id>_<name>.md`, and a document with the order. Agents
write these in their own words, so the usual forms are read, and what is not found is not made up: where the
order names no batches their number is an estimate and says so, and tasks without points are counted.
"""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from isolation.files.plain import read_plain
from isolation.patterns import pattern
from runner.core.choose import activity
from runner.core.flow import artifact_parts
from runner.core.text.words import count

TASK_FILES = "*_*.md"
"""How the last part of an artifact ends that stands for one file per task."""

TASKS_PER_BATCH = 4
"""The estimate where the order names no batches: about as many as agents work on side by side."""

_NAMED = 5
_ENOUGH = 1 << 20
_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?![0-9])"
_MARKS = r"[ \t*_`>|#-]*"
_LINE, _IS = rf"(?im)^{_MARKS}", rf"[^:=|\n]{{0,200}}[:=|]{_MARKS}~?"
_POINTS = pattern(rf"{_LINE}(?:estimated )?(?:complexity|story points?|points)\b{_IS}{_NUMBER}")
_HEADED_POINTS = pattern(rf"(?im)^#+[ \t]*complexity[^\n]*\n\s*+{_MARKS}~?{_NUMBER}")
_TOTAL_POINTS = pattern(rf"{_LINE}total[^:=|\n]{{0,200}}(?:complexity|points){_IS}{_NUMBER}")
_COLUMN = pattern(r"(?i)\b(?:complexity|points)\b")
_TOTAL_BATCHES = pattern(rf"{_LINE}(?:estimated |total |number of )*batches\b{_IS}([0-9]{{1,9}})(?![0-9])")
_BATCH = pattern(r"\b[Bb](?:atch|ATCH)[ \t]+#?([0-9]+|[A-Z])\b")


class Produced(Struct, frozen=True, kw_only=True):
    """What a step left. `tasks` is 0 for a step that decomposes nothing; `files` are named then.

    `batches` is `estimated` where the order does not say. `points` is None where none are given;
    `without_points` counts the tasks that have none.
    """

    files: tuple[str, ...] = ()
    tasks: int = 0
    batches: int = 0
    estimated: bool = False
    points: float | None = None
    without_points: int = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines for the boundary's question."""
        if not self.tasks:
            more = f" and {len(self.files) - _NAMED} more" if len(self.files) > _NAMED else ""
            return (f"Produced: {', '.join(self.files[:_NAMED])}{more}",) if self.files else ()
        return (
            f"Tasks: {self.tasks}",
            f"Estimated batches: {self._batches}",
            f"Complexity points: {self._points}",
        )

    @property
    def words(self) -> str:
        """The same in one line, for a record."""
        if not self.tasks:
            return ""
        batches = count(self.batches, "batch", "batches")
        points = "no complexity points" if self.points is None else f"{self.points:g} complexity points"
        return f"{count(self.tasks, 'task')}, {'about ' * self.estimated}{batches}, {points}"

    @property
    def _batches(self) -> str:
        hint = f" (the order names none; {TASKS_PER_BATCH} tasks each)"
        return f"about {self.batches}{hint}" if self.estimated else str(self.batches)

    @property
    def _points(self) -> str:
        if self.points is None:
            return "none given"
        left = f" ({count(self.without_points, 'task')} without)" if self.without_points else ""
        return f"{self.points:g}{left}"


def ready_notes(finished: str, upcoming: str, produced: Produced) -> str:
    """Return the note of a boundary: what is complete, what is ready, and what there is to do."""
    return f"{finished} complete, {activity(upcoming)} ready" + (
        f": {produced.words}" if produced.words else ""
    )


def read_produced(workspace: Path, artifacts: Sequence[str]) -> Produced:
    """Read what the artifacts of a finished step hold; `{cycle}` in them is filled. Blocking."""
    globs = [artifact_parts(text)[0] for text in artifacts]
    per_task = [glob for glob in globs if glob.endswith(f"/{TASK_FILES}")]
    others = list(_files(workspace, (glob for glob in globs if glob not in per_task)))
    tasks = [path for path in _files(workspace, per_task) if path not in others]
    if not tasks:
        return Produced(files=tuple(dict.fromkeys(path.name for path in others)))
    texts, order = [_text(path) for path in tasks], "\n".join(map(_text, others))
    batches, given = _batches(order), [_task_points(text) for text in texts]
    known = [points for points in given if points is not None]
    return Produced(
        tasks=len(tasks),
        batches=batches or math.ceil(len(tasks) / TASKS_PER_BATCH),
        estimated=not batches,
        points=sum(known) if known else _order_points(order),
        without_points=len(given) - len(known) if known else 0,
    )


def _files(workspace: Path, globs: Iterable[str]) -> list[Path]:
    return [path for glob in globs for path in sorted(workspace.glob(glob)) if path.is_file()]


def _text(path: Path) -> str:
    try:
        return read_plain(path, _ENOUGH).decode("utf-8", "replace")
    except OSError:
        return ""


def _task_points(text: str) -> float | None:
    found = _POINTS.search(text) or _HEADED_POINTS.search(text)
    return float(found[1]) if found else None


def _batches(order: str) -> int:
    """Return how many batches the order names: as a total, or one by one; 0 if it names none."""
    total = _TOTAL_BATCHES.search(order)
    return int(total[1]) if total else len(set(_BATCH.findall(order)))


def _order_points(order: str) -> float | None:
    """Return the points that the order gives: a total, or a column of its table."""
    total = _TOTAL_POINTS.search(order)
    if total:
        return float(total[1])
    column, found = None, []
    for line in order.splitlines():
        cells = [cell.strip(" \t*_`") for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|"):
            column = None
        elif column is None:
            column = next((place for place, cell in enumerate(cells) if _COLUMN.search(cell)), None)
        elif column < len(cells) and not cells[0].lower().startswith("total"):
            read = re.match(_NUMBER, cells[column])
            found += [float(read[1])] if read else []
    return sum(found) if found else None

"""A forecast as text: the pairs that conflict with their files, a matrix, the best order."""

from collections.abc import Mapping, Sequence

from runner.core.forecast.clashes import Clash, Forecast
from runner.core.text.conflicts import files_text
from runner.core.text.words import count
from runner.report.terminal.table import Cell, Column, Look, layout

_FILES = 5
_WIDEST = 20
"""The most stories that a matrix shows; beyond, its rows are not readable any more."""


def forecast_text(made: Forecast, statuses: Mapping[str, str], *, look: Look, matrix: bool = False) -> str:
    """Return a forecast as text."""
    stories = count(len(made.stories), "story", "stories")
    if not made.stories:
        return "no story has work that could land\n"
    if not made.clashes:
        return f"no conflicts: {stories}, in any order, onto {made.onto}\n"
    conflicts = count(len(made.clashes), "conflict")
    lines = [look.paint(f"{conflicts} among {stories}, onto {made.onto}", "bold"), ""]
    columns = [Column(title="STORY", limit=28), Column(title="WITH", limit=28), Column(title="FILES")]
    lines += layout(columns, [_row(clash, made.onto) for clash in made.clashes], look)
    if matrix:
        lines += ["", *_matrix(made)]
    lines += ["", *look.wrapped(f"best order: {', '.join(made.order)}")]
    if made.lost:
        lines += look.wrapped(f"left out in it: {', '.join(made.lost)}", color="yellow")
    if made.uncommitted:
        lines += look.wrapped(
            f"with files that are not committed yet: {', '.join(made.uncommitted)}", color="dim"
        )
    waiting = [name for name in made.stories if statuses.get(name) not in {"done", None}]
    if waiting:
        lines += look.wrapped(f"not done yet, so this may change: {', '.join(waiting)}", color="dim")
    return "\n".join(lines) + "\n"


def _row(clash: Clash, onto: str) -> list[Cell]:
    one, other = (*clash.stories, onto)[:2]
    return [
        Cell(text=one, color="bold"),
        Cell(text=other, color="bold"),
        Cell(text=files_text(clash, _FILES)),
    ]


def _matrix(made: Forecast) -> Sequence[str]:
    """Return a row and a column for each story that conflicts; `x` is a conflict."""
    named = [name for name in made.stories if any(name in clash.stories for clash in made.clashes)]
    if len(named) > _WIDEST:
        return [f"the matrix of {len(named)} stories is too wide; --json has all pairs"]
    pairs = {frozenset(clash.stories) for clash in made.clashes}
    width = max(len(name) for name in named)
    digits = len(str(len(named)))
    head = " ".join(f"{number:>{digits}}" for number in range(1, len(named) + 1))
    lines = [f"{'':>{digits}} {'':<{width}} {head}  {made.onto}"]
    for number, name in enumerate(named, 1):
        marks = [_mark(name, other, pairs).rjust(digits) for other in named]
        alone = "x" if frozenset({name}) in pairs else "·"
        lines.append(f"{number:>{digits}} {name:<{width}} {' '.join(marks)}  {alone}")
    return lines


def _mark(one: str, other: str, pairs: set[frozenset[str]]) -> str:
    if one == other:
        return " "
    return "x" if frozenset({one, other}) in pairs else "·"

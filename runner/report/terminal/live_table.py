"""The table of the dashboard: its columns, and which of them give way on a narrow terminal.

The last column, what a story does or waits for, keeps a readable width. Until it has it, columns go in this
order: title, step, left, cost, attempt, time. A column without any content takes no room.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct
from rich.text import Text

from runner.core.model import RunSnapshot, Status, StorySnapshot
from runner.core.outlook.left import Outlook, left_words
from runner.core.outlook.waiting import waiting
from runner.core.text.amounts import dollars
from runner.core.text.instants import stopwatch
from runner.core.text.screen import cells, neutral, shorten, widest
from runner.core.text.words import (
    COLORS,
    SYMBOLS,
    attempt,
    because,
    doing,
    label,
    phase,
    recovery,
    worked,
)

DROPPED = ("TITLE", "STEP", "LEFT", "COST", "ATTEMPT", "TIME", "REPO")
"""The order in which columns give way."""
DETAIL_CELLS = 28
"""How wide the last column is before others give way to it; with a title, twice as much."""
_GAP = 2
_MARK, _NO_MARK = "▸ ", "  "


class Rows(Struct, frozen=True, kw_only=True):
    """What the table shows: these stories of a run, and which one is selected."""

    run: RunSnapshot
    stories: Sequence[StorySnapshot]
    outlook: Outlook
    now: float
    selected: str | None = None
    selectable: bool = False


class _Column(Struct, frozen=True, kw_only=True):
    title: str
    cell: Callable[[Rows, StorySnapshot], str]
    limit: int
    right: bool = False


def table(rows: Rows, width: int, *, titled: bool) -> list[Text]:
    """Return the lines of the table; `titled`: the first one names the columns."""
    columns = _columns(width)
    texts = {each.title: [each.cell(rows, story) for story in rows.stories] for each in columns}
    widths = {
        each.title: min(each.limit, max(widest(texts[each.title]), len(each.title)))
        for each in columns
        if any(texts[each.title])
    }
    mark = _GAP if rows.selectable else 0
    for title in DROPPED:
        needed = DETAIL_CELLS * (2 if title == "TITLE" else 1)
        if width - mark - sum(widths.values()) - _GAP * len(widths) >= needed:
            break
        widths.pop(title, None)
    used = [each for each in columns if each.title in widths]
    room = max(0, width - mark - sum(widths.values()) - _GAP * len(widths))
    lines = [_titles(used, widths, mark, width)] if titled and used else []
    for number, story in enumerate(rows.stories):
        shown = [(each, texts[each.title][number]) for each in used]
        lines.append(_row(rows, story, shown, widths, room))
    return lines


def _columns(width: int) -> list[_Column]:
    return [
        _Column(title="STORY", cell=_name, limit=max(10, width // 4)),
        _Column(title="REPO", cell=lambda rows, story: rows.run.repo_name(story.repo), limit=16),
        _Column(title="TITLE", cell=lambda _, story: neutral(story.title), limit=max(8, width // 5)),
        _Column(title="STATUS", cell=lambda _, story: label(phase(story)), limit=10),
        _Column(title="STEP", cell=_step, limit=16),
        _Column(title="ATTEMPT", cell=lambda _, story: attempt(story), limit=7),
        _Column(title="TIME", cell=_time, limit=8, right=True),
        _Column(title="COST", cell=_cost, limit=9, right=True),
        _Column(title="LEFT", cell=_left, limit=11, right=True),
    ]


def _titles(used: Sequence[_Column], widths: dict[str, int], mark: int, width: int) -> Text:
    cells_ = [each.title.rjust(widths[each.title]) if each.right else each.title for each in used]
    text = " " * mark + (" " * _GAP).join(
        cell.ljust(widths[each.title]) for each, cell in zip(used, cells_, strict=True)
    )
    return Text(shorten(text.rstrip(), width), style="dim", no_wrap=True)


def _row(
    rows: Rows,
    story: StorySnapshot,
    shown: Sequence[tuple[_Column, str]],
    widths: dict[str, int],
    room: int,
) -> Text:
    color = COLORS[phase(story)]
    chosen = rows.selectable and story.id == rows.selected
    line = Text(no_wrap=True, overflow="crop", style="bold" if chosen else "")
    if rows.selectable:
        line.append(_MARK if chosen else _NO_MARK, style="bold" if chosen else "")
    for column, text in shown:
        fitted = shorten(text, widths[column.title])
        space = " " * (widths[column.title] - cells(fitted))
        style = color if column.title in {"STORY", "STATUS"} else ""
        line.append(space + fitted if column.right else fitted + space, style=style)
        line.append(" " * _GAP)
    quiet = story.status is not Status.RUNNING and not _is_asked(story)
    stepped = any(column.title == "STEP" for column, _ in shown)
    detail = shorten(detail_of(rows.run, story, rows.now, stepped=stepped), room)
    line.append(detail, style="magenta" if _is_asked(story) else "dim" if quiet else "")
    return line


def detail_of(run: RunSnapshot, story: StorySnapshot, now: float, *, stepped: bool = False) -> str:
    """Return what a story does, waits for or has made, or why it ended; the step is not said twice."""
    found = waiting(story, run, now)
    if found is not None:
        return f"{found.words}: {found.detail}" if found.detail else found.words
    if story.status.final and story.status is not Status.DONE and story.reason:
        return f"{because(story)}; {recovery(story.kill_switch)}".removesuffix("; ")
    words = doing(story)
    if stepped and story.status is Status.RUNNING:
        words = words.removeprefix(story.step.name).removeprefix(": ").strip()
    return words


def _is_asked(story: StorySnapshot) -> bool:
    return story.decision is not None and not story.decision.letter


def _name(_: Rows, story: StorySnapshot) -> str:
    return f"{SYMBOLS[phase(story)]} {story.id}"


def _step(_: Rows, story: StorySnapshot) -> str:
    return neutral(story.step.name) if story.status is Status.RUNNING else ""


def _time(rows: Rows, story: StorySnapshot) -> str:
    ran = worked(story, rows.now)
    return "" if ran is None else stopwatch(ran)


def _cost(_: Rows, story: StorySnapshot) -> str:
    usage = story.usage
    return "" if usage.cost_usd is None else dollars(usage.cost_usd, about=usage.estimated)


def _left(rows: Rows, story: StorySnapshot) -> str:
    return left_words(rows.outlook.stories.get(story.id))

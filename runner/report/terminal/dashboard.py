"""The live view of a run: takes a snapshot, a clock and a size, and returns a renderable.

It fits any width and height, shows running stories first, and removes control characters from
whatever agents printed.
"""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from runner.core.model import RunSnapshot, Status, StorySnapshot
from runner.core.outlook.left import Outlook, left_words
from runner.core.outlook.spent import spent_words
from runner.core.text.conflicts import conflict_line
from runner.core.text.instants import stopwatch
from runner.core.text.screen import cells, folded, neutral, shorten
from runner.core.text.words import SYMBOLS, at_work, count, label, machine, phase, recovery
from runner.report.terminal.live_frame import LiveFrame
from runner.report.terminal.live_table import Rows, table
from runner.report.terminal.picture import PaneText, Picture, shown_stories

_TITLED_FROM = 8
"""From how many lines for the table on its first line names the columns."""
_LEAST_ROWS = 3
_SMALL = 17
"""How many lines for table and pane are few."""
_COMPACT_BELOW = 14
"""Below which height only what says something is drawn."""
_PLAIN = Picture()
_ORDER = {Status.RUNNING: 0, Status.PARKED: 1, Status.QUEUED: 3, Status.WAITING: 4}


def render(
    run: RunSnapshot, *, now: float, width: int, height: int, hint: str, picture: Picture = _PLAIN
) -> RenderableType:
    """Draw a run. `hint` says what Ctrl-C does now; `picture` is what somebody at its keys looks at."""
    summary = _summary(run, picture.outlook, width)
    head = [_head(run, now), _bar(run, width), *summary, Text()]
    foot = _foot(run, picture, hint, width)
    if height < _COMPACT_BELOW:  # no blank lines and no bar, and with a pane no summary
        head = [_head(run, now), *(summary if picture.pane is None else ())]
        foot = foot[1:]
    left = max(1, height - len(head) - len(foot))
    pane: list[Text] = []
    if picture.pane is not None:
        rows = len(shown_stories(run, picture.filter, picture.text))
        pane = _pane(picture.pane, width, _pane_room(picture.pane, left, rows, width))
    body = _body(run, picture, now, width, left - len(pane))
    return Group(*head, *body, *pane, *foot)


def _body(run: RunSnapshot, picture: Picture, now: float, width: int, room: int) -> list[Text]:
    """Return the table, as many of its rows as there is room for, and a count of the others."""
    stories = shown_stories(run, picture.filter, picture.text)
    titled = room >= _TITLED_FROM or (picture.pane is not None and room > _TITLED_FROM // 2)
    room -= titled
    if not stories:
        return [_line("no story matches the filter", "dim")][: max(0, room)] if run.stories else []
    if len(stories) > room:
        room = max(1, room - 1)
        shown = _chosen_rows(stories, picture.selected, room)
    else:
        shown = stories
    rows = Rows(
        run=run,
        stories=shown,
        outlook=picture.outlook,
        now=now,
        selected=picture.selected,
        selectable=bool(picture.keys),
    )
    lines = table(rows, width, titled=titled)
    visible = {story.id for story in shown}
    hidden = [story for story in stories if story.id not in visible]
    return [*lines, _line(_more(hidden), "dim")] if hidden else lines


def _chosen_rows(stories: Sequence[StorySnapshot], selected: str | None, room: int) -> list[StorySnapshot]:
    """Return the stories for which there is room: those around the selected one, as the arrow keys walk them.

    Without a selection, those that need a look most come first.
    """
    at = next((number for number, story in enumerate(stories) if story.id == selected), None)
    if at is not None:
        first = min(max(0, at - room // 2), max(0, len(stories) - room))
        return list(stories[first : first + room])
    return sorted(stories, key=_urgency)[:room]


def _pane_room(pane: PaneText, left: int, rows: int, width: int) -> int:
    """Return how many lines a pane gets; it does not grow and shrink with what is printed into it.

    The table has as many as it needs, up to half of the screen, or a third of a small one; to a question it
    gives way.
    """
    if pane.must_show:
        wanted = 1 + len(pane_lines(pane, width))
        return max(0, min(wanted, left - _LEAST_ROWS))
    return max(0, left - max(_LEAST_ROWS, min(rows + 1, left // 3 + 1 if left < _SMALL else left // 2)))


def pane_lines(pane: PaneText, width: int) -> list[str]:
    """Return all lines of a pane at this width; long ones are wrapped, so that nothing is lost."""
    return [part for line in (*pane.head, *pane.lines) for part in folded(line, width)]


def most_scroll(pane: PaneText, width: int, height: int) -> int:
    """Return how far a pane of this height can be scrolled."""
    head = sum(len(folded(line, width)) for line in pane.head)
    # The first lines may be a part of what is scrolled.
    return max(0, len(pane_lines(pane, width)) - max(1, height - head))


def _pane(pane: PaneText, width: int, room: int) -> list[Text]:
    if room < 1:
        return []
    head = [part for line in pane.head for part in folded(line, width)]
    lines = [part for line in pane.lines for part in folded(line, width)]
    if len(head) > room - _LEAST_ROWS:  # there is no room for lines that stay; they can be scrolled to
        head, lines = [], [*head, *lines]
    shown = max(0, room - 1 - len(head))
    most = max(0, len(lines) - shown)
    first = most - min(pane.scroll, most) if pane.follows else min(pane.scroll, most)
    part = lines[first : first + shown]
    where = f"{first + 1}-{first + len(part)} of {len(lines)}" if most and part else ""
    style = _diff_style if pane.colored else lambda _: ""
    return [
        _rule(pane.title, where, width),
        *(Text(line, style="dim", no_wrap=True) for line in head),
        *(Text(line, style=style(line), no_wrap=True) for line in part),
        *(Text() for _ in range(shown - len(part))),
    ]


def _rule(title: str, where: str, width: int) -> Text:
    name = shorten(f"── {neutral(title)} ", max(0, width - 2))
    end = f" {where} ──" if where and cells(name) + len(where) + 6 < width else ""
    line = Text(no_wrap=True, overflow="crop")
    line.append(name, style="bold")
    line.append("─" * max(0, width - cells(name) - len(end)), style="dim")
    line.append(end, style="dim")
    return line


def _diff_style(line: str) -> str:
    styles = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}
    return styles.get(line[:1], "") if not line.startswith(("+++", "---")) else "bold"


def _foot(run: RunSnapshot, picture: Picture, hint: str, width: int) -> list[Text]:
    lines: list[Text] = [Text()]
    if run.kill_switch:
        lines.append(_line(f"stopping: {run.kill_switch.name}: {neutral(run.kill_switch.detail)}", "yellow"))
        lines.append(_line(recovery(run.kill_switch), "dim"))
    if conflicts := conflict_line(run):
        lines.append(_line(conflicts, "yellow"))
    if picture.answer:
        lines += [Text(part, style="bold", no_wrap=True) for part in folded(picture.answer, width)]
    if picture.keys:
        lines.append(_line(picture.keys, "dim"))
    parked = run.count(Status.PARKED)
    open_ones = count(parked, "open decision") if parked else "no open decisions"
    lines.append(_line(f"{hint} · {open_ones}", "dim"))
    return lines


class Dashboard:
    """The live view on a terminal; `update` only stores the snapshot, `refresh` draws it.

    Lines written to `sys.stderr` meanwhile appear above it. It disappears on exit.
    """

    def __init__(
        self,
        run: RunSnapshot,
        *,
        no_color: bool = False,
        console: Console | None = None,
        hint: str,
    ) -> None:
        # None, not False, so that rich still respects NO_COLOR.
        self._console = console or Console(stderr=True, no_color=no_color or None, highlight=False)
        self._run = run
        self._now = run.started_at
        self.hint = hint
        self.picture = _PLAIN
        self._frame = LiveFrame(self._paint, console=self._console)

    def __enter__(self) -> Self:
        self._frame.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._frame.stop()

    def update(self, run: RunSnapshot) -> None:
        """Store the newest snapshot, which the next refresh draws."""
        self._run = run

    def refresh(self, now: float) -> None:
        """Draw at the current size of the terminal."""
        self._now = now
        self._frame.refresh()

    def _paint(self, *, width: int, height: int) -> RenderableType:
        return render(
            self._run, now=self._now, width=width, height=height, hint=self.hint, picture=self.picture
        )

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height of the terminal."""
        return self._console.size.width, self._console.size.height


def _urgency(story: StorySnapshot) -> tuple[int, float]:
    """Order stories for a small terminal: running, needing you, then last finished, then next."""
    return _ORDER.get(story.status, 2), -(story.ended_at or 0.0)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _head(run: RunSnapshot, now: float) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    until = now if run.ended_at is None else run.ended_at
    grid.add_row(_line(f"autopilot-multi · run {run.run_id}", "bold"), stopwatch(until - run.started_at))
    return grid


def _bar(run: RunSnapshot, width: int) -> RenderableType:
    total = len(run.stories)
    finished = sum(1 for story in run.stories.values() if story.status.final)
    progress = f"{finished} of {total} finished"
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(
        total=max(1, total),
        completed=finished,
        width=max(4, width - len(progress) - 2),
        complete_style="green",
        finished_style="green",
    )
    grid.add_row(bar, progress)
    return grid


def _summary(run: RunSnapshot, outlook: Outlook, width: int) -> list[Text]:
    """Return the counts, what is spent, what is left and the machine: in one line where they fit."""
    asked = next((check.command for check in run.base_checks if not check.answer), "")
    base = f"checking the base: {neutral(asked)}" if asked and not run.kill_switch else ""
    left = left_words(outlook.left)
    parts = [f"{left} left" if left else "", spent_words(run.usage, outlook.cost_usd), _others(run), base]
    first = " · ".join(part for part in parts if part)
    paused = "paused, nothing starts · " if run.paused else ""
    second = paused + f"{at_work(run)} · {machine(run)}"
    color = "yellow" if run.paused else "dim"
    if not first or (cells(first) + cells(second) + 3 <= width and not run.paused):
        return [_line(f"{first} · {second}" if first else second, color)]
    return [_line(first), _line(second, color)]


def _others(run: RunSnapshot) -> str:
    """Count the stories that do not run: `4 done, 1 failed`."""
    counts = Counter(phase(story) for story in run.stories.values())
    kinds = [status for status in SYMBOLS if counts[status] and status is not Status.RUNNING]
    return ", ".join(f"{counts[kind]} {label(kind)}" for kind in kinds)


def _more(hidden: Sequence[StorySnapshot]) -> str:
    counted = {status: sum(1 for story in hidden if story.status is status) for status in SYMBOLS}
    kinds = [status for status in SYMBOLS if counted[status]]
    if len(kinds) == 1:
        return f"… {len(hidden)} more {label(kinds[0])}"
    return f"… {len(hidden)} more: {', '.join(f'{counted[kind]} {label(kind)}' for kind in kinds)}"

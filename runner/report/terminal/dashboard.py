"""The live view of a run: takes a snapshot, a clock and a size, and returns a renderable.

It fits any width and height, shows running stories first, and removes control characters from
whatever agents printed.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from runner.core.model import RunSnapshot, Status, StorySnapshot
from runner.core.text.conflicts import conflict_line
from runner.core.text.instants import stopwatch
from runner.core.text.screen import neutral
from runner.core.text.words import (
    COLORS,
    SYMBOLS,
    at_work,
    attempt,
    because,
    count,
    doing,
    label,
    machine,
    phase,
    recovery,
    worked,
)
from runner.report.terminal.live_frame import LiveFrame

_FRAME_LINES = 7  # head, bar, machine, blank, "more", blank, foot
_SWITCH_LINES = 2
_TITLES_FROM = 100
_ORDER = {Status.RUNNING: 0, Status.QUEUED: 2, Status.WAITING: 3}


def render(run: RunSnapshot, *, now: float, width: int, height: int, hint: str) -> RenderableType:
    """Draw a run. `hint` says what Ctrl-C does now."""
    stories = list(run.stories.values())
    conflicts = conflict_line(run)
    room = max(1, height - _FRAME_LINES - (_SWITCH_LINES if run.kill_switch else 0) - bool(conflicts))
    shown = stories if len(stories) <= room else sorted(stories, key=_urgency)[:room]
    visible = {story.id for story in shown}
    hidden = [story for story in stories if story.id not in visible]
    parts: list[RenderableType] = [_head(run, now), _bar(run, width), _line(_machine(run), "dim"), Text()]
    parts.append(_table(shown, now, width))
    if hidden:
        parts.append(_line(_more(hidden), "dim"))
    parts.append(Text())
    if run.kill_switch:
        parts.append(_line(f"stopping: {run.kill_switch.name}: {neutral(run.kill_switch.detail)}", "yellow"))
        parts.append(_line(recovery(run.kill_switch), "dim"))
    if conflicts:
        parts.append(_line(conflicts, "yellow"))
    parked = run.count(Status.PARKED)
    open_ones = count(parked, "open decision") if parked else "no open decisions"
    parts.append(_line(f"{hint} · {open_ones}", "dim"))
    return Group(*parts)


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
        return render(self._run, now=self._now, width=width, height=height, hint=self.hint)


def _urgency(story: StorySnapshot) -> tuple[int, float]:
    """Order stories for a small terminal: running, then last finished, then next."""
    return _ORDER.get(story.status, 1), -(story.ended_at or 0.0)


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


def _machine(run: RunSnapshot) -> str:
    asked = next((check.command for check in run.base_checks if not check.answer), "")
    base = f"checking the base: {neutral(asked)} · " if asked and not run.kill_switch else ""
    return base + f"{at_work(run)} · {machine(run)}"


def _table(stories: Sequence[StorySnapshot], now: float, width: int) -> Table:
    titled = width >= _TITLES_FROM
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, max_width=max(10, width // 4))
    if titled:
        table.add_column(no_wrap=True, max_width=width // 5)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, ratio=1)
    for story in stories:
        seen = phase(story)
        color = COLORS[seen]
        ran = worked(story, now)
        cells = [
            _line(f"{SYMBOLS[seen]} {story.id}", color),
            *([_line(neutral(story.title))] if titled else []),
            _line(label(seen), color),
            _line(attempt(story)),
            _line("" if ran is None else stopwatch(ran)),
            _line(_detail(story), "" if story.status is Status.RUNNING else "dim"),
        ]
        table.add_row(*cells)
    return table


def _detail(story: StorySnapshot) -> str:
    if story.status.final and story.status is not Status.DONE and story.reason:
        return f"{because(story)}; {recovery(story.kill_switch)}".removesuffix("; ")
    return doing(story)


def _more(hidden: Sequence[StorySnapshot]) -> str:
    counted = {status: sum(1 for story in hidden if story.status is status) for status in SYMBOLS}
    kinds = [status for status in SYMBOLS if counted[status]]
    if len(kinds) == 1:
        return f"… {len(hidden)} more {label(kinds[0])}"
    return f"… {len(hidden)} more: {', '.join(f'{counted[kind]} {label(kind)}' for kind in kinds)}"

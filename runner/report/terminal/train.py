"""A landing on a terminal: the live view of its train, and the lines that `status` and reports share."""

from collections.abc import Container, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from runner.core.progress.landing import Batch, Car, LandingProgress, LandingState, culprits
from runner.core.text.instants import span, stopwatch
from runner.core.text.screen import neutral
from runner.core.text.words import count

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SYMBOLS = {
    Car.WAITING: "·",
    Car.VERIFYING: "●",
    Car.GREEN: "✓",
    Car.RED: "✗",
    Car.CONFLICT: "≠",
    Car.LEFT: "✗",
    Car.LANDED: "✓",
}
"""Every state has a symbol, so that nothing is shown by color alone."""

COLORS = {
    Car.WAITING: "dim",
    Car.VERIFYING: "cyan",
    Car.GREEN: "green",
    Car.RED: "red",
    Car.CONFLICT: "yellow",
    Car.LEFT: "red",
    Car.LANDED: "green",
}
RECOVER = "autopilot-multi resume"
_FRAME_LINES = 6  # head, blank, "more", blank, foot, and room for one line that wraps
_MOST_IN_FLIGHT = 4
_ORDER = (Car.VERIFYING, Car.RED, Car.CONFLICT, Car.LEFT, Car.WAITING, Car.GREEN, Car.LANDED)


def _headline(one: LandingProgress, *, now: float, alive: bool) -> str:
    """Return where a landing is, in one line; `alive` means that its process is still there."""
    took = span((one.ended_at or now) - one.started_at)
    runs = f", {count(one.verify_runs, 'verify run')}" if one.verify_runs else ""
    state = one.state
    if not state.final and not alive:
        words = f"interrupted; finish it with `{RECOVER}`"
        return f"landing {one.id} on {one.onto}: {words}"
    words = {
        LandingState.VERIFYING: f"verifying for {took}{runs}",
        LandingState.MOVING: f"verified in {took}{runs}; {one.onto} is about to move",
        LandingState.LANDED: f"{_stories(one.landed)} landed at {one.after[:10]} in {took}{runs}",
        LandingState.NOTHING: f"nothing landed{f': {one.reason}' * bool(one.reason)}, in {took}{runs}",
        LandingState.ABANDONED: f"given up: {one.reason}",
        LandingState.UNDOING: "being undone",
        LandingState.UNDONE: "undone",
    }[state]
    return neutral(f"landing {one.id} on {one.onto}: {words}")


def landing_lines(
    one: LandingProgress, *, now: float, alive: bool, besides: Container[str] = ()
) -> list[str]:
    """Return where a landing is, then its stories; why one was left out is said unless it is in `besides`."""
    return [_headline(one, now=now, alive=alive), *_train_lines(one if alive else one.at_rest(), besides)]


def _train_lines(one: LandingProgress, besides: Container[str]) -> list[str]:
    cars = one.cars()
    lines = [f"verifying now: {sequence(batch)}" for batch in one.in_flight]
    for car in (Car.LANDED, Car.GREEN, Car.RED, Car.CONFLICT, Car.WAITING):
        names = [story for story, state in cars.items() if state is car]
        if names and not (car is Car.LANDED and one.state is LandingState.UNDONE):
            lines.append(f"{car.value}: {', '.join(names)}")
    if one.state is LandingState.LANDED or one.state is LandingState.NOTHING:
        lines = [line for line in lines if not line.startswith((Car.GREEN.value, Car.WAITING.value))]
        lines += [
            f"not landed: {left.story}: {left.reason}"
            for left in one.left.values()
            if left.story not in besides
        ]
    return [neutral(line) for line in lines]


def sequence(batch: Batch) -> str:
    """Return which stories are verified together."""
    stories = batch.stories
    if not stories:
        return "the target as it is"
    if len(stories) == 1:
        return stories[0]
    return f"{len(stories)} stories ({stories[0]} … {stories[-1]})"


def _stories(names: Sequence[str]) -> str:
    return count(len(names), "story", "stories")


def render(one: LandingProgress, *, now: float, width: int, height: int, hint: str) -> "RenderableType":
    """Draw a landing. `hint` says what Ctrl-C does now."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(neutral(text), style=style, no_wrap=True, overflow="ellipsis")

    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    title = f"autopilot-multi · landing on {one.onto} · {count(one.verify_runs, 'verify run')}"
    again = f" · rebuilt {count(one.rebuilds, 'time')}" if one.rebuilds else ""
    head.add_row(line(title + again, "bold"), stopwatch((one.ended_at or now) - one.started_at))
    flying = one.in_flight[:_MOST_IN_FLIGHT]
    parts: list[RenderableType] = [head]
    parts += [
        line(f"verifying {sequence(batch)} for {span(now - batch.started_at)}", "cyan") for batch in flying
    ]
    if one.state is LandingState.MOVING:
        parts.append(line(f"{one.onto} moves to what was verified", "cyan"))
    room = max(1, height - _FRAME_LINES - len(flying))
    parts += [Text(), _table(one, room, width), Text(), line(hint, "dim")]
    return Group(*parts)


def _table(one: LandingProgress, room: int, width: int) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    cars = one.cars()
    numbers = {story: number for number, story in enumerate(cars, 1)}
    chosen = sorted(cars, key=lambda story: (_ORDER.index(cars[story]), numbers[story]))[:room]
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, max_width=max(10, width // 3))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, ratio=1)
    red = culprits(one.batches)
    for story in sorted(chosen, key=lambda each: numbers[each]):
        car = cars[story]
        style = COLORS[car]
        detail = f"{red[story].command}: {red[story].detail}" if car is Car.RED else ""
        reason = one.left[story].reason if story in one.left else detail
        cells = (str(numbers[story]), f"{SYMBOLS[car]} {story}", car.value, reason)
        table.add_row(
            *(
                Text(neutral(cell), style="" if place == 3 else style, no_wrap=True, overflow="ellipsis")  # noqa: PLR2004  the reason is plain
                for place, cell in enumerate(cells)
            )
        )
    if len(cars) > len(chosen):
        table.add_row("", Text(f"… {len(cars) - len(chosen)} more", style="dim"), "", "")
    return table


class TrainBoard:
    """The live view of a landing on a terminal; it disappears on exit."""

    def __init__(self, one: LandingProgress, *, console: "Console", hint: str = "") -> None:
        from runner.report.terminal.live_frame import LiveFrame

        self.landing = one
        self.hint = hint
        self._now = one.started_at
        self._frame = LiveFrame(self._paint, console=console)

    def __enter__(self) -> Self:
        self._frame.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._frame.stop()

    def refresh(self, now: float) -> None:
        """Draw at the current size of the terminal."""
        self._now = now
        self._frame.refresh()

    def _paint(self, *, width: int, height: int) -> "RenderableType":
        return render(self.landing, now=self._now, width=width, height=height, hint=self.hint)

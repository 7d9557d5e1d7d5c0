"""A picture at the bottom of a terminal, under the lines that are said meanwhile, whatever its size becomes.

A terminal that is resized wraps the lines that are there anew, lets some go over the top and may bring them
back. Nobody can tell from here how many rows an older picture takes then, so that pieces of it would stay.
The screen is cleared instead, and the newest lines that were said stand above the picture again.
"""

from collections import deque
from typing import Protocol

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType

_KEPT_LINES = 10


class Painter(Protocol):
    """Whoever draws the picture."""

    def __call__(self, *, width: int, height: int) -> RenderableType:
        """Draw it so that it fits."""


class LiveFrame(Live):
    """The place of the picture; `refresh` draws it, and `stop` wipes it away."""

    def __init__(self, paint: Painter, *, console: Console) -> None:
        super().__init__(
            _Picture(paint),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            vertical_overflow="crop",
        )
        self._size = console.size
        self._cleared = False
        self._said: deque[ConsoleRenderable] = deque(maxlen=_KEPT_LINES)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Put what is said above the picture; on a resized screen, all of it anew."""
        framed = super().process_renderables(renderables)
        if self._is_disturbed():
            framed[1:1] = [Control(ControlType.CLEAR, ControlType.HOME), *self._said]
        self._said.extend(one for one in renderables if not isinstance(one, Control))
        return framed

    def _is_disturbed(self) -> bool:
        """Tell whether a resize may have left pieces of a picture; a first that gave more room did not."""
        before, self._size = self._size, self.console.size
        if self._size == before:
            return False
        roomier = self._size.width >= before.width and self._size.height >= before.height
        # Once rows went over the top, a larger screen may bring them back.
        self._cleared = self._cleared or not roomier
        return self._cleared


class _Picture:
    """What is drawn, at the size that the terminal has at that moment."""

    def __init__(self, paint: Painter) -> None:
        self._paint = paint

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw."""
        yield self._paint(width=options.size.width, height=options.size.height)

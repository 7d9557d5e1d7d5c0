"""A live frame at the bottom of a terminal, below the lines printed meanwhile; it survives resizing.

A resized terminal rewraps its lines, may scroll some off the top and may bring them back. How many rows an
older frame then takes is unknown, so parts of it would remain. The screen is cleared instead, and the newest
printed lines are repeated above the frame.
"""

from collections import deque
from typing import Protocol

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType

_KEPT_LINES = 10


class Painter(Protocol):
    """Draws the frame."""

    def __call__(self, *, width: int, height: int) -> RenderableType:
        """Draw the frame so that it fits."""


class LiveFrame(Live):
    """The area of the frame; `refresh` draws it, `stop` removes it."""

    def __init__(self, paint: Painter, *, console: Console) -> None:
        super().__init__(
            _Frame(paint),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            vertical_overflow="crop",
        )
        self._size = console.size
        self._cleared = False
        self._printed: deque[ConsoleRenderable] = deque(maxlen=_KEPT_LINES)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Print new lines above the frame; on a resized screen, repeat the newest ones."""
        framed = super().process_renderables(renderables)
        if self._is_disturbed():
            framed[1:1] = [Control(ControlType.CLEAR, ControlType.HOME), *self._printed]
        self._printed.extend(one for one in renderables if not isinstance(one, Control))
        return framed

    def _is_disturbed(self) -> bool:
        """Return whether a resize may have left parts of a frame; a first one that adds room does not."""
        before, self._size = self._size, self.console.size
        if self._size == before:
            return False
        roomier = self._size.width >= before.width and self._size.height >= before.height
        # Once rows have scrolled off the top, a larger screen may bring them back.
        self._cleared = self._cleared or not roomier
        return self._cleared


class _Frame:
    """Draws at the size that the terminal has at that moment."""

    def __init__(self, paint: Painter) -> None:
        self._paint = paint

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw."""
        yield self._paint(width=options.size.width, height=options.size.height)

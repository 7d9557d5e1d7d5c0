"""Show the progress of a landing: a live train in a terminal, plain lines elsewhere, or JSON events."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from runner.cli.output import Output, narrate
from runner.cli.view import REFRESH_SECONDS, print_event
from runner.core.events.events import Event
from runner.core.events.folds.landing_fold import Landings, landings_after
from runner.core.events.landing import LandingBody

if TYPE_CHECKING:
    from runner.report.terminal.train import TrainBoard


class PlainLanding:
    """Prints the progress to stderr, a line each."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def seen(self, event: Event) -> None:
        """Print nothing: what is worth a line is said."""

    def say(self, line: str) -> None:
        """Print one line."""
        self._output.say(line)

    def progress(self, line: str) -> None:
        """Print one line."""
        self._output.say(line)

    async def refresh(self, hint: Callable[[], str]) -> None:  # noqa: ARG002  only the live view shows hints
        """Do nothing."""
        await trio.sleep_forever()


class EventLanding(PlainLanding):
    """Prints every step as one JSON line to stdout, and messages to stderr."""

    def seen(self, event: Event) -> None:
        """Print the event; it belongs to the landing, not to one of the runs."""
        print_event(event, with_run=False)

    def say(self, line: str) -> None:
        """Print one line to stderr."""
        narrate(line)

    def progress(self, line: str) -> None:
        """Print nothing: the events say it."""


class LiveLanding(PlainLanding):
    """Redraws the train a few times per second."""

    def __init__(self, output: Output, *, no_color: bool) -> None:
        super().__init__(output)
        self._no_color = no_color
        self._landings: Landings = ()
        self._board: TrainBoard | None = None

    def seen(self, event: Event) -> None:
        """Keep the newest state for the next redraw."""
        if isinstance(event.body, LandingBody):
            self._landings = landings_after(self._landings, event.body, event.at)

    def progress(self, line: str) -> None:
        """Print nothing: the train shows it."""

    async def refresh(self, hint: Callable[[], str]) -> None:
        """Redraw until cancelled, then restore the screen."""
        try:
            while True:
                if self._landings:
                    with suppress(OSError):  # losing the terminal must not end the landing
                        self._draw(hint())
                await trio.sleep(REFRESH_SECONDS)
        finally:
            board, self._board = self._board, None
            if board is not None:
                with suppress(OSError):
                    board.__exit__(None, None, None)

    def _draw(self, hint: str) -> None:
        from rich.console import Console

        from runner.report.terminal.train import TrainBoard

        if self._board is None:
            console = Console(stderr=True, no_color=self._no_color or None, highlight=False)
            self._board = TrainBoard(self._landings[-1], console=console)
            self._board.__enter__()
        self._board.landing, self._board.hint = self._landings[-1], hint
        self._board.refresh(time.time())


def choose_landing_view(output: Output, *, events: bool, no_color: bool, verbose: bool) -> PlainLanding:
    """Return the view for this terminal and these flags."""
    if events:
        return EventLanding(output)
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not (output.quiet or verbose):
        return LiveLanding(output, no_color=no_color)
    return PlainLanding(output)

"""Show the progress of a run: a live dashboard in a terminal, plain lines elsewhere, or JSON events."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from runner.cli.output import Output, narrate
from runner.core.events.events import Event, OutputSeen, PlaceFound, encode
from runner.core.model import RunSnapshot
from runner.core.text.screen import neutral
from runner.report.terminal.narration import banner_of, line_for

if TYPE_CHECKING:
    from runner.cli.dialog import TerminalDialog
    from runner.run.interaction import LiveRun

REFRESH_SECONDS = 0.25


class _StaticView:
    """A view that is never redrawn, so that it has nothing to pause."""

    def pause(self) -> None:
        """Do nothing."""

    def resume(self) -> None:
        """Do nothing."""

    async def refresh(self, hint: Callable[[], str]) -> None:  # noqa: ARG002  only the dashboard shows hints
        """Do nothing."""
        await trio.sleep_forever()


class PlainView(_StaticView):
    """Prints one line per event to stderr."""

    def __init__(self, output: Output, *, verbose: bool) -> None:
        self._output = output
        self._verbose = verbose
        self._held: list[str] | None = None

    def pause(self) -> None:
        """Hold lines back while the user is asked a question."""
        self._held = self._held or []

    def resume(self) -> None:
        """Print the lines that were held back."""
        held, self._held = self._held, None
        for line in held or ():
            self._output.say(line)

    def seen(self, event: Event, run: RunSnapshot) -> None:
        """Print important events; when verbose, also the output of sessions."""
        if self._output.quiet:
            return
        line = line_for(event, run)
        if self._verbose and isinstance(event.body, OutputSeen):
            line = f"{event.body.story_id}: {neutral(event.body.line)}"
        if line:
            self._say(line)
        if isinstance(event.body, PlaceFound):
            for each in banner_of(event.body):
                self._say(f"  {each}")

    def _say(self, line: str) -> None:
        if self._held is None:
            self._output.say(line)
        else:
            self._held.append(line)

    def say(self, line: str) -> None:
        """Print one line."""
        self._output.say(line)


class LiveView:
    """The dashboard, with keys where somebody can press them; then it also asks the questions.

    As a dialog it keeps the run open while a question is on the screen; what is answered goes to the run
    through the same door as from any other terminal.
    """

    def __init__(self, output: Output, directory: Path, *, no_color: bool, keys: bool) -> None:
        from rich.console import Console

        from runner.cli.live.board import LiveBoard
        from runner.cli.live.terminal import KeyTerminal

        self.has_keys = keys
        self._output = output
        # None, not False, so that rich still respects NO_COLOR.
        console = Console(stderr=True, no_color=no_color or None, highlight=False)
        terminal = KeyTerminal(sys.stdin.fileno()) if keys else None
        self._board = LiveBoard(directory, console=console, keys=terminal)
        self._board.bell = False  # until the run says what its settings are

    def seen(self, event: Event, run: RunSnapshot) -> None:
        """Keep the newest state for the next redraw; the status of a story that continues is printed."""
        if isinstance(event.body, PlaceFound):
            for line in banner_of(event.body):
                self.say(line)
        self._board.update(run)

    def say(self, line: str) -> None:
        """Print one line above the dashboard."""
        self._output.say(line)

    def pause(self) -> None:
        """Do nothing: a question is a part of the picture."""

    def resume(self) -> None:
        """Do nothing."""

    async def refresh(self, hint: Callable[[], str]) -> None:
        """Redraw until cancelled, then restore the screen."""
        await self._board.show(hint)

    def waits(self, run: RunSnapshot) -> bool:
        """Return whether a question is still open at this terminal; the run must not end then."""
        return self._board.waits(run)

    async def serve(self, run: "LiveRun") -> None:
        """Let the run know of questions that are postponed; they are asked where the run is drawn."""
        self._board.bell = run.bell
        self._board.postponed = run.postponed
        await trio.sleep_forever()


def print_event(event: Event, *, with_run: bool = True) -> None:
    """Print an event as one JSON line to stdout; a failed write never ends the work."""
    kind, data = encode(event.body)
    # The line has its own `kind`; a session's kind must not overwrite it.
    if "kind" in data:
        data["session_kind"] = data.pop("kind")
    run = {"run_id": event.run_id} if with_run else {}
    line = {**run, "at": event.at, "kind": kind, **data}
    try:
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    except OSError as error:
        # What is written from now on goes nowhere, instead of failing each time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            narrate(f"warning: cannot write events any more ({error.strerror}); the run continues")


class EventView(_StaticView):
    """Prints every durable event as one JSON line to stdout."""

    def seen(self, event: Event, _run: RunSnapshot) -> None:
        """Print the event."""
        if not isinstance(event.body, OutputSeen):
            print_event(event)

    def say(self, line: str) -> None:
        """Print one line to stderr, so that stdout contains only events."""
        narrate(line)


def choose_view(
    output: Output, directory: str, *, events: bool, no_color: bool, verbose: bool
) -> PlainView | LiveView | EventView:
    """Return the view for this terminal and these flags."""
    if events:
        return EventView()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not (output.quiet or verbose):
        from runner.cli.live.terminal import has_keys

        return LiveView(output, Path(directory), no_color=no_color, keys=has_keys() and not output.as_json)
    return PlainView(output, verbose=verbose)


def choose_dialog(
    output: Output, view: PlainView | LiveView | EventView
) -> "LiveView | TerminalDialog | None":
    """Return what asks questions at this terminal: the dashboard, else a dialog by lines, or nothing."""
    if isinstance(view, LiveView) and view.has_keys:
        return view
    if isinstance(view, EventView):
        return None
    from runner.cli.dialog import open_dialog

    return open_dialog(output)

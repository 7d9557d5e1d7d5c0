"""Show the progress of a run: a live dashboard in a terminal, plain lines elsewhere, or JSON events."""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from runner.cli.output import Output, narrate
from runner.core.events.events import Event, OutputSeen, PlaceFound, encode
from runner.core.model import RunSnapshot
from runner.core.text.screen import neutral
from runner.report.terminal.narration import banner_of, line_for

if TYPE_CHECKING:
    from runner.report.terminal.dashboard import Dashboard

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
    """Redraws the dashboard a few times per second."""

    def __init__(self, output: Output, *, no_color: bool) -> None:
        self._output = output
        self._no_color = no_color
        self._run: RunSnapshot | None = None
        self._begun = trio.Event()
        self._dashboard: Dashboard | None = None
        self._paused = False

    def seen(self, event: Event, run: RunSnapshot) -> None:
        """Keep the newest state for the next redraw; the status of a story that continues is printed."""
        if isinstance(event.body, PlaceFound):
            for line in banner_of(event.body):
                self.say(line)
        self._run = run
        self._begun.set()

    def say(self, line: str) -> None:
        """Print one line above the dashboard."""
        self._output.say(line)

    def pause(self) -> None:
        """Remove the dashboard from the screen until `resume`."""
        self._paused = True
        self._close()

    def resume(self) -> None:
        """Draw again."""
        self._paused = False

    async def refresh(self, hint: Callable[[], str]) -> None:
        """Redraw until cancelled, then restore the screen."""
        await self._begun.wait()
        try:
            while True:
                if self._run is not None and not self._paused:
                    with suppress(OSError):  # losing the terminal must not end the run
                        self._draw(self._run, hint())
                await trio.sleep(REFRESH_SECONDS)
        finally:
            self._close()

    def _draw(self, run: RunSnapshot, hint: str) -> None:
        from runner.report.terminal.dashboard import Dashboard

        if self._dashboard is None:
            self._dashboard = Dashboard(run, no_color=self._no_color, hint=hint)
            self._dashboard.__enter__()
        self._dashboard.hint = hint
        self._dashboard.update(run)
        self._dashboard.refresh(time.time())

    def _close(self) -> None:
        dashboard, self._dashboard = self._dashboard, None
        if dashboard is not None:
            with suppress(OSError):
                dashboard.__exit__(None, None, None)


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
    output: Output, *, events: bool, no_color: bool, verbose: bool
) -> PlainView | LiveView | EventView:
    """Return the view for this terminal and these flags."""
    if events:
        return EventView()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not (output.quiet or verbose):
        return LiveView(output, no_color=no_color)
    return PlainView(output, verbose=verbose)

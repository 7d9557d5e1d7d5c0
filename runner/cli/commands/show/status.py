"""Show the state of the active run, the newest run, or the run you name.

With --watch the display follows the run until it ends; with --json --watch the document is printed
at the end.
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.cli.observer import Observer

EXAMPLE = "autopilot-multi status --watch"

POLL_SECONDS = 0.25
EXIT_INTERRUPTED = 130
HINT = "Ctrl-C: stop watching; the run continues"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `status`."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="the id of a run or its first characters")
    parser.add_argument("--watch", action="store_true", help="follow the run until it ends")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show the run once, or until it ends."""
    from runner.cli.observer import Observer

    with Observer(arguments.directory, arguments.run) as observer:
        if arguments.watch:
            try:
                _watch(observer, arguments, output)
            except KeyboardInterrupt:
                return EXIT_INTERRUPTED
        _show(observer, arguments, output)
    return 0


def _show(observer: "Observer", arguments: argparse.Namespace, output: Output) -> None:
    from runner.report.document import document
    from runner.report.terminal.table import look_for
    from runner.report.terminal.text import status

    sight = observer.look()
    output.document(document(sight.run, alive=sight.alive))
    if not output.as_json:
        look = look_for(sys.stdout, no_color=arguments.no_color)
        run = observer.with_last_lines(sight.run)
        output.answer(status(run, look=look, now=time.time(), alive=sight.alive))
        output.say_where(arguments.directory)


def _watch(observer: "Observer", arguments: argparse.Namespace, output: Output) -> None:
    """Follow the run until it ends; the caller prints the final state."""
    if output.as_json:
        while not observer.look().over:
            time.sleep(POLL_SECONDS)
    elif sys.stdout.isatty():
        _draw(observer, no_color=arguments.no_color)
    else:
        _repeat(observer, arguments, output)


def _draw(observer: "Observer", *, no_color: bool) -> None:
    from rich.console import Console

    from runner.report.terminal.dashboard import Dashboard

    sight = observer.look()
    console = Console(no_color=no_color or None, highlight=False)
    with Dashboard(sight.run, console=console, hint=HINT) as dashboard:
        while not sight.over:
            dashboard.update(observer.with_last_lines(sight.run))
            dashboard.refresh(time.time())
            time.sleep(POLL_SECONDS)
            sight = observer.look()


def _repeat(observer: "Observer", arguments: argparse.Namespace, output: Output) -> None:
    """Print the table again whenever the run has changed."""
    sight, shown = observer.look(), None
    while not sight.over:
        if sight.run != shown:
            _show(observer, arguments, output)
            output.answer("\n")
            shown = sight.run
        time.sleep(POLL_SECONDS)
        sight = observer.look()

"""Show the aggregated state of a run: the one that is going on, else the newest, else a named one.

With --watch the view follows the run to its end; with --json --watch the one document comes then.
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

LOOK_EVERY = 0.25
EXIT_INTERRUPTED = 130
HINT = "Ctrl-C: stop watching; the run goes on"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `status`."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's id, or the beginning of it")
    parser.add_argument("--watch", action="store_true", help="follow the run to its end")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Look once, or until the run is over."""
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
    """Show the run as it goes on; what it came to is shown afterwards."""
    if output.as_json:
        while not observer.look().over:
            time.sleep(LOOK_EVERY)
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
            time.sleep(LOOK_EVERY)
            sight = observer.look()


def _repeat(observer: "Observer", arguments: argparse.Namespace, output: Output) -> None:
    """Print the table anew whenever the run has changed."""
    sight, shown = observer.look(), None
    while not sight.over:
        if sight.run != shown:
            _show(observer, arguments, output)
            output.answer("\n")
            shown = sight.run
        time.sleep(LOOK_EVERY)
        sight = observer.look()

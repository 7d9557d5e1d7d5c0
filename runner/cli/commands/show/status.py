"""Show the state of a run: the active one, else the newest, or the one that you name.

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
    from runner.cli.run_reader import RunReader

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
    from runner.cli.run_reader import RunReader

    with RunReader(arguments.directory, arguments.run) as reader:
        if arguments.watch:
            try:
                _watch(reader, arguments, output)
            except KeyboardInterrupt:
                return EXIT_INTERRUPTED
        _show(reader, arguments, output)
    return 0


def _show(reader: "RunReader", arguments: argparse.Namespace, output: Output) -> None:
    from runner.cli.merged import with_merged
    from runner.report.run_document import run_document
    from runner.report.terminal.table import look_for
    from runner.report.terminal.text import status

    current = reader.read()
    run = with_merged(current.run, arguments.directory) if current.over else current.run
    output.document(run_document(run, alive=current.alive))
    if not output.as_json:
        look = look_for(sys.stdout, no_color=arguments.no_color)
        run = reader.with_last_lines(run)
        output.answer(status(run, look=look, now=time.time(), alive=current.alive))
        output.say_where(arguments.directory)


def _watch(reader: "RunReader", arguments: argparse.Namespace, output: Output) -> None:
    """Follow the run until it ends; the caller prints the final state."""
    if output.as_json:
        while not reader.read().over:
            time.sleep(POLL_SECONDS)
    elif sys.stdout.isatty():
        _draw(reader, no_color=arguments.no_color)
    else:
        _repeat(reader, arguments, output)


def _draw(reader: "RunReader", *, no_color: bool) -> None:
    from rich.console import Console

    from runner.report.terminal.dashboard import Dashboard

    current = reader.read()
    console = Console(no_color=no_color or None, highlight=False)
    with Dashboard(current.run, console=console, hint=HINT) as dashboard:
        while not current.over:
            dashboard.update(reader.with_last_lines(current.run))
            dashboard.refresh(time.time())
            time.sleep(POLL_SECONDS)
            current = reader.read()


def _repeat(reader: "RunReader", arguments: argparse.Namespace, output: Output) -> None:
    """Print the table again whenever the run has changed."""
    current, shown = reader.read(), None
    while not current.over:
        if current.run != shown:
            _show(reader, arguments, output)
            output.answer("\n")
            shown = current.run
        time.sleep(POLL_SECONDS)
        current = reader.read()

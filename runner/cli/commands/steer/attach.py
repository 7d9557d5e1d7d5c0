"""Follow the active run until it ends, as `run` shows it: from any terminal, as often as you like.

Leaving (Ctrl-C, or a closed terminal) does not disturb the run. If it ends while you watch, its report is
printed, and the exit code is that of the run.
"""

import argparse

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi attach"
EXIT_KILLED = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `attach`."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="the id of a run or its first characters")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Watch, then report."""
    from runner.cli.commands.show.status import watch
    from runner.cli.final_report import print_final_report
    from runner.core.errors import NotFoundError
    from runner.report.run_document import settled
    from runner.run.control.reader import RunReader
    from runner.run.result.ended import Ended

    with RunReader(arguments.directory, arguments.run) as reader:
        if reader.read().over:
            raise NotFoundError(
                f"run {reader.run_id} is not active",
                hint="`autopilot-multi status` shows how it ended, `autopilot-multi resume` continues it.",
            )
        try:
            left = watch(reader, arguments, output)
        except KeyboardInterrupt:
            left = True
        if left:
            output.say(f"left run {reader.run_id}, which continues; `autopilot-multi attach` returns to it")
            return 0
        current = reader.read()
    code = current.run.exit_code
    ended = Ended(run=settled(current.run, alive=False), exit_code=EXIT_KILLED if code is None else code)
    return print_final_report(ended, output, directory=arguments.directory, no_color=arguments.no_color)

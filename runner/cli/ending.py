"""The end of a run as the command line shows it: the report, the document, the exit code."""

import sys

from runner.app import Ended
from runner.cli.output import Output
from runner.report.document import document
from runner.report.table import look_for
from runner.report.text import report


def show_end(ended: Ended, output: Output, *, no_color: bool, silent: bool = False) -> int:
    """Print the final report, unless stdout belongs to the events."""
    if not silent:
        output.document(document(ended.run), success=ended.exit_code == 0)
        output.answer(report(ended.run, look=look_for(sys.stdout, no_color=no_color)))
    return ended.exit_code

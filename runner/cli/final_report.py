"""What the command line prints at the end of a run: the report, the JSON document, the exit code."""

import os
import sys

from runner.cli.merged import with_merged
from runner.cli.output import Output
from runner.report.run_document import run_document
from runner.report.terminal.table import look_for
from runner.report.terminal.text import report
from runner.run.coordinator import Ended


def print_final_report(
    ended: Ended, output: Output, *, directory: str, no_color: bool, silent: bool = False
) -> int:
    """Print the final report, unless stdout has the events; a failed write never changes the exit code."""
    try:
        if not silent:
            run = with_merged(ended.run, directory)
            output.document(run_document(run), success=ended.exit_code == 0)
            output.answer(report(run, look=look_for(sys.stdout, no_color=no_color)))
    except OSError as error:
        # Python flushes stdout at exit; without this, that would fail and change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            output.warn(f"cannot write the report ({error.strerror}); see it with `autopilot-multi status`")
    return ended.exit_code

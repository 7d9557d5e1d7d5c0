"""What the command line prints at the end of a run: the report, the JSON document, the exit code."""

import os
import sys
from typing import TYPE_CHECKING, Any

from runner.cli.merged import with_merged
from runner.cli.output import Output
from runner.report.run_document import run_document
from runner.report.terminal.table import look_for
from runner.report.terminal.text import report
from runner.run.coordinator import Ended

if TYPE_CHECKING:
    from runner.land.after_run import AfterRun


def print_final_report(
    ended: Ended,
    output: Output,
    *,
    directory: str,
    no_color: bool,
    silent: bool = False,
    landed: "AfterRun | None" = None,
) -> int:
    """Print the final report, unless stdout has the events; a failed write never changes the exit code.

    `landed` is the landing at the end of the run, which adds to the report and to the exit code.
    """
    ended, code = (ended, ended.exit_code) if landed is None else (landed.ended, landed.code)
    try:
        if not silent:
            run = with_merged(ended.run, directory)
            output.document({**run_document(run), **_landing_data(landed)}, success=code == 0)
            output.answer(report(run, look=look_for(sys.stdout, no_color=no_color)))
        if landed is not None:
            _print_landing(landed, output, silent=silent)
    except OSError as error:
        # Python flushes stdout at exit; without this, that would fail and change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            output.warn(f"cannot write the report ({error.strerror}); see it with `autopilot-multi status`")
    return code


def _landing_data(landed: "AfterRun | None") -> dict[str, Any]:
    if landed is None:
        return {}
    if landed.landing is None:
        return {"landing": {"landed": [], "not_landed": [], "why_not": landed.why_not}}
    from runner.cli.commands.run.land import landing_data

    return {"landing": landing_data(landed.landing)}


def _print_landing(landed: "AfterRun", output: Output, *, silent: bool) -> None:
    if landed.landing is None:
        words = f"nothing was landed: {landed.why_not}"
        output.warn(words) if landed.failed else output.say(words)
    elif not silent:
        from runner.cli.commands.run.land import landing_text

        output.answer(landing_text(landed.landing))

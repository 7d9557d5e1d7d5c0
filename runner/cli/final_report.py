"""What the command line prints at the end of a run: the report, the JSON document, the exit code."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from runner.cli.output import Output
from runner.core.model import RunSnapshot
from runner.report.run_document import run_document
from runner.report.terminal.table import look_for
from runner.report.terminal.text import report
from runner.run.control.merged import with_merged
from runner.run.result.ended import Ended


class Appendix(Struct, frozen=True, kw_only=True):
    """What a landing adds to the end of a run: the run as it is now, the exit code, document and text."""

    run: RunSnapshot
    code: int
    data: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


def print_final_report(
    ended: Ended,
    output: Output,
    *,
    directory: str,
    no_color: bool,
    silent: bool = False,
    appendix: Appendix | None = None,
) -> int:
    """Print the final report, unless stdout has the events; a failed write never changes the exit code.

    The landing at the end of the run, if there was one, adds to it, and decides about the exit code.
    """
    landed = appendix or Appendix(run=ended.run, code=ended.exit_code)
    try:
        if not silent:
            run = with_merged(landed.run, directory)
            output.document({**run_document(run), **landed.data}, success=landed.code == 0)
            output.answer(report(run, look=look_for(sys.stdout, no_color=no_color)))
            output.answer(landed.text)
    except OSError as error:
        # Python flushes stdout at exit; without this, that would fail and change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            output.warn(f"cannot write the report ({error.strerror}); see it with `autopilot-multi status`")
    return landed.code

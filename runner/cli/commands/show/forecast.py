"""Show which stories will conflict when they land, in which files, and the order that loses the fewest.

Looks at the branches of done stories and at the working trees of stories that are running, also at files
that are not committed yet. Git merges each two of them for trial; no lock is taken and nothing is changed.
Before a run, `plan` shows which claims overlap.
"""

import argparse
import sys
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi forecast --matrix"

SEES_TREES = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `forecast`."""
    parser.add_argument(
        "--onto", metavar="BRANCH", help="the branch to land on (default: that of the main checkout)"
    )
    parser.add_argument(
        "--repo", metavar="NAME", help="only this repository, of those in which stories have worked"
    )
    parser.add_argument("--matrix", action="store_true", help="also show a matrix of the stories")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Make the forecast and show it."""
    from runner.land.forecast import outlooks
    from runner.report.forecast_document import forecast_document
    from runner.report.terminal.forecast import forecast_text
    from runner.report.terminal.table import look_for

    every = outlooks(Path(arguments.directory), arguments.onto, arguments.repo)
    look = look_for(sys.stdout, no_color=arguments.no_color)
    documents = []
    for name, found in every.items():
        stories = [{"id": story, "status": status} for story, status in found.statuses.items()]
        documents.append({**forecast_document(found.forecast), "tip": found.tip, "stories": stories})
        output.answer(f"{name}:" if len(every) > 1 else "")
        output.answer(forecast_text(found.forecast, found.statuses, look=look, matrix=arguments.matrix))
    several = [{"repo": name, **one} for name, one in zip(every, documents, strict=True)]
    output.document(documents[0] if len(every) == 1 else {"repos": several})
    return 0

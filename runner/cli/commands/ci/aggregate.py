"""Join the shards of CI jobs into one run, or list the state files of many stories in one table.

If a PATH contains shards (see `run --shard-out`), they are joined and shown the way `status` shows a
run. The exit code is that of a single run; a missing, damaged, foreign or contradictory shard is named,
the others are joined, and the exit code is not 0. Nothing is changed unless you pass --into-repo or
--branches.

Otherwise a PATH is a state file, or a folder to search for `_autodev_state.md` and
`_autopilot_state.md`. Without a PATH, the command searches the worktrees of this repository's stories
and the checkout itself. A file that cannot be read is listed with its problem, and the exit code is 1
after all files are shown.
"""

import argparse
import sys
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import CommandLineError, common
from runner.cli.run_options import add_branch_prefix

EXAMPLE = "autopilot-multi aggregate artifacts/ ../shop.worktrees"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `aggregate`."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a folder with shards, a state file, or a folder to search for state files",
    )
    shards = parser.add_argument_group("shards")
    shards.add_argument(
        "--matrix",
        metavar="FILE",
        help="the output of `matrix --format json`: each of its stories needs a shard (default: the backlog)",
    )
    shards.add_argument(
        "--only", metavar="ID", action="append", help="require a shard only for this story; repeatable"
    )
    shards.add_argument(
        "--branches", action="store_true", help="import the branches of the stories into this clone"
    )
    shards.add_argument(
        "--into-repo",
        action="store_true",
        help="save the run in this repository, so that status, report and resume can use it",
    )
    shards.add_argument(
        "--records",
        metavar="FILE",
        help="add how long each story took to FILE, for `matrix --records`; keep it in a cache",
    )
    add_branch_prefix(shards)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Join shards if any folder contains some or a flag is about shards, otherwise list state files."""
    from runner.records.shards.shard import find_shards

    here = Path(arguments.directory)
    asked = any(getattr(arguments, flag) for flag in ("matrix", "only", "branches", "into_repo", "records"))
    if asked and not arguments.paths:
        raise CommandLineError(
            "no folder with shards is named", "pass the folder that contains the artifacts of the CI jobs."
        )
    # Where no job has left a shard, the run is shown all the same: it says so, and is not a success.
    if asked or any(next(find_shards(here / path), None) for path in arguments.paths):
        from runner.cli.shards import join_shards

        return join_shards(arguments, output)
    return _aggregate_states(arguments, output)


def _aggregate_states(arguments: argparse.Namespace, output: Output) -> int:
    """Read every file once; show blockers and retries first, then the table."""
    from runner.cli.positions import positions_document, positions_text, rows_in
    from runner.report.terminal.table import look_for

    here = Path(arguments.directory)
    rows = rows_in(here, [here / path for path in arguments.paths])
    readable = all(row.state is not None for row in rows)
    output.document(positions_document(rows), success=readable)
    if not rows:
        output.answer("no state files")
        return 0
    output.answer(positions_text(rows, look_for(sys.stdout, no_color=arguments.no_color)))
    return 0 if readable else 1

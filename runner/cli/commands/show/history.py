"""Show past runs, newest first, with totals.

Only stories that started are counted; the success rate is the share of those that are done. Stories
stopped by a limit that you set (`max-sessions`) do not count as killed.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.core.past_runs import PastRun, PastStory

EXAMPLE = "autopilot-multi history --limit 5"

DEFAULT_LIMIT = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `history`."""
    limit = f"show the newest N runs (default: {DEFAULT_LIMIT})"
    parser.add_argument("--limit", metavar="N", type=_positive, default=DEFAULT_LIMIT, help=limit)
    parser.add_argument("--story", metavar="ID", help="show one story in all its runs")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Read the records and print them."""
    from isolation.files.lease import holder_is_alive
    from isolation.paths import find_repository
    from runner.core.past_runs import past_runs
    from runner.records.telemetry import load_loops, load_newest_loops, records_checkout

    paths = find_repository(Path(arguments.directory))
    if holder_is_alive(paths.common_dir) and (active := _active_run(arguments.directory)):
        output.say(f"run {active} is still active; see `autopilot-multi status`")
    checkout = records_checkout(paths)
    if arguments.story is None:
        records, count = load_newest_loops(checkout, arguments.limit)
        _show_runs(past_runs(records), count, arguments, output)
    else:
        _show_story(past_runs(load_loops(checkout)), arguments, output)
    return 0


def _active_run(directory: str) -> str | None:
    """Return the id of the active run, which has no record yet."""
    from runner.core.errors import RunnerError
    from runner.run.control.reader import RunReader

    try:
        with RunReader(directory) as reader:
            return None if reader.read().over else reader.run_id
    except RunnerError:  # without a journal, the records are still readable
        return None


def _show_runs(
    shown: "tuple[PastRun, ...]", count: int, arguments: argparse.Namespace, output: Output
) -> None:
    from runner.core.past_runs import summary
    from runner.report.terminal.history import runs_document, runs_text
    from runner.report.terminal.table import look_for

    total = summary(shown)
    output.document(runs_document(shown, total))
    if not shown:
        output.answer("no finished runs in this repository yet")
        return
    look = look_for(sys.stdout, no_color=arguments.no_color)
    output.answer(runs_text(shown, total, left_out=count - len(shown), look=look))


def _show_story(runs: "tuple[PastRun, ...]", arguments: argparse.Namespace, output: Output) -> None:
    from runner.core.past_runs import of_story, summary_of_story
    from runner.report.terminal.history import story_document, story_text
    from runner.report.terminal.table import look_for

    parts = of_story(runs, arguments.story)
    if runs and not parts:
        raise _unknown(runs, arguments.story)
    shown: tuple[PastStory, ...] = parts[: arguments.limit]
    total = summary_of_story(shown)
    output.document(story_document(arguments.story, shown, total))
    if not runs:
        output.answer("no finished runs in this repository yet")
        return
    look = look_for(sys.stdout, no_color=arguments.no_color)
    output.answer(story_text(shown, total, left_out=len(parts) - len(shown), look=look))


def _unknown(runs: "tuple[PastRun, ...]", name: str) -> Exception:
    from runner.core.errors import NotFoundError
    from runner.core.text.names import did_you_mean

    known = {story.id for run in runs for story in run.stories}
    hint = did_you_mean(name, sorted(known)) or "list all runs with `autopilot-multi history`."
    return NotFoundError(f"no recorded run has a story '{name}'", hint=hint)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not '{text}'")
    return int(text)

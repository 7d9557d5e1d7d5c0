"""Ask a running coordinator, from any terminal, to stop the run or some of its stories.

Sessions reach their end first; with --now they are ended with their grace.
"""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi stop --now"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `stop`."""
    parser.add_argument(
        "stories", nargs="*", metavar="STORY", help="only these stories; default: the whole run"
    )
    parser.add_argument(
        "--now", action="store_true", help="end running sessions instead of awaiting their end"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Leave the request in the journal, where the coordinator finds it."""
    from isolation.files.lease import holder_is_alive, read_holder
    from isolation.paths import find_repository, journal_path
    from runner.core.errors import NotFoundError
    from runner.core.events.fold import fold
    from runner.core.text.names import did_you_mean
    from runner.records.journal import Journal

    common_dir = find_repository(Path(arguments.directory)).common_dir
    if not holder_is_alive(common_dir):
        raise NotFoundError(
            "no run is going on in this repository", hint="`autopilot-multi status` shows the newest one."
        )
    with Journal.open_existing(journal_path(common_dir)) as journal:
        holder = read_holder(common_dir)
        run_id = journal.find_run(holder.run_id) if holder else journal.newest_run()
        known = fold(run_id, journal.events(run_id)).stories
        for name in arguments.stories:
            if name not in known:
                raise NotFoundError(
                    f"run {run_id} has no story '{name}'",
                    hint=did_you_mean(name, known) or f"it has: {', '.join(known)}.",
                )
        for name in arguments.stories or (None,):
            journal.add_request(run_id, "stop", name, {"now": arguments.now})
    what = ", ".join(arguments.stories) or f"run {run_id}"
    when = "now" if arguments.now else "at the end of the running sessions"
    output.document({"run_id": run_id, "stories": arguments.stories, "now": arguments.now})
    output.answer(f"asked {what} to stop {when}")
    return 0

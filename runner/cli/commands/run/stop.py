"""Stop the active run, or some of its stories, from any terminal.

Sessions that are running finish first. With --now they are asked to exit, and killed after
`grace-seconds`.
"""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi stop --now"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `stop`."""
    parser.add_argument(
        "stories", nargs="*", metavar="STORY", help="only these stories (default: the whole run)"
    )
    parser.add_argument(
        "--now", action="store_true", help="stop running sessions instead of waiting for them to finish"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the request to the journal, where the active run reads it."""
    from isolation.files.lease import holder_is_alive, read_holder
    from isolation.paths import find_repository, journal_path
    from runner.core.errors import NotFoundError
    from runner.core.events.fold import fold
    from runner.core.text.names import did_you_mean
    from runner.records.journal import Journal

    common_dir = find_repository(Path(arguments.directory)).common_dir
    if not holder_is_alive(common_dir):
        raise NotFoundError(
            "no run is active in this repository", hint="`autopilot-multi status` shows the latest run."
        )
    with Journal.open_existing(journal_path(common_dir)) as journal:
        # The active run may be a resumed, older one, so the newest run is only a fallback.
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
    when = "now" if arguments.now else "after its current sessions"
    output.document({"run_id": run_id, "stories": arguments.stories, "now": arguments.now})
    output.answer(f"stopping {what} {when}")
    return 0

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
    """Ask the active run."""
    from runner.core.model import StoryId
    from runner.run.control.reader import RunReader
    from runner.run.control.requests import Stop
    from runner.run.control.steering import Steering, require_stories

    steering = Steering(Path(arguments.directory))
    run_id = steering.require_active()
    stories: tuple[StoryId, ...] = ()
    if arguments.stories:
        with RunReader(arguments.directory, run_id) as reader:
            stories = require_stories(run_id, arguments.stories, reader.read().run.stories)
    steering.send(*(Stop(story_id=name, now=arguments.now) for name in stories or (None,)), run_id=run_id)
    what = ", ".join(stories) or f"run {run_id}"
    when = "now" if arguments.now else "after its current sessions"
    output.document({"run_id": run_id, "stories": list(stories), "now": arguments.now})
    output.answer(f"stopping {what} {when}")
    return 0

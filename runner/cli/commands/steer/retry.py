"""Try a story again that has failed, was stopped or changed nothing: it gets a new set of attempts.

An active run takes it up at once. Without one, the newest run continues with this story alone, here or with
--detach. What you say with --note is quoted in the next prompt.
"""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common
from runner.cli.run_options import add_detach, add_trust

EXAMPLE = 'autopilot-multi retry checkout-17 --note "keep the old API"'


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `retry`."""
    parser.add_argument("story", metavar="STORY", help="the id of the story")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start over from the base; the old branch is kept under refs/autopilot/old/",
    )
    parser.add_argument("--note", metavar="TEXT", default="", help="what the next session should know")
    parser.add_argument("--events", action="store_true", help="stream every event as a line of JSON")
    add_detach(parser)
    add_trust(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Ask the active run, or continue the newest one."""
    from runner.run.control.reader import RunReader
    from runner.run.control.requests import Retry
    from runner.run.control.steering import Steering, require_stories

    steering = Steering(Path(arguments.directory))
    active = steering.active
    with RunReader(arguments.directory, active) as reader:
        run = reader.read().run
    (story_id,) = require_stories(run.run_id, (arguments.story,), run.stories)
    request = Retry(story_id=story_id, note=arguments.note, fresh=arguments.fresh)
    if active is None:
        from runner.cli.commands.run.resume import continue_run

        arguments.run, arguments.retry_failed = run.run_id, False
        return continue_run(arguments, output, again=request)
    reply = steering.send(request, run_id=active)
    output.document({"run_id": active, "story": story_id, "taken": reply.taken})
    output.answer(f"story {story_id} is tried again in run {active}")
    return 0

"""Print the prompt that the next session of a story would get.

A story that the newest run has not finished is shown as `resume` would continue it, any other as in a new
run. Starts nothing and writes nothing. The setting `prompt-template` replaces the built-in template.
"""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi prompt checkout-17"

SEES_TREES = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `prompt`."""
    common(parser)
    parser.add_argument("story", metavar="STORY", help="the id of the story")
    parser.add_argument(
        "--new-run", action="store_true", help="as in a new run, also if the newest run could be resumed"
    )


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Plan as a run would, and print one prompt."""
    from runner.core.model import StoryId
    from runner.plan.plan import RunRequest, make_plan
    from runner.run.preview import preview

    plan = make_plan(RunRequest(directory=Path(arguments.directory), again=True))
    found = preview(plan, StoryId(arguments.story), new_run=arguments.new_run)
    for note in found.notes:
        output.warn(f"story {arguments.story}: {note}")
    output.document({"story": arguments.story, "prompt": found.prompt, "notes": list(found.notes)})
    if not output.as_json:
        output.answer(found.prompt.rstrip("\n"))
    return 0

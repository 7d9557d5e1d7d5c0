"""Print the prompt that the first session of a story would get.

Starts nothing and writes nothing. The setting `prompt-template` replaces the built-in template.
"""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi prompt checkout-17"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `prompt`."""
    common(parser)
    parser.add_argument("story", metavar="STORY", help="the id of the story")


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Plan as a run would, and print one prompt."""
    from runner.core.model import StoryId
    from runner.plan.plan import RunRequest, make_plan
    from runner.story.session.preview import preview

    plan = make_plan(RunRequest(directory=Path(arguments.directory), again=True))
    text = preview(plan, StoryId(arguments.story))
    output.document({"story": arguments.story, "prompt": text})
    if not output.as_json:
        output.answer(text.rstrip("\n"))
    return 0

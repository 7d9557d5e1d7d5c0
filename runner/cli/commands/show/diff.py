"""Show what a story has changed since its base: its commits, and what is not committed in its worktree.

On a terminal it goes through a pager (PAGER, else less). A session that works there is not disturbed.
"""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi diff checkout-17 --stat"

SEES_TREES = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `diff`."""
    parser.add_argument("story", metavar="STORY", help="the id of the story")
    parser.add_argument("--stat", action="store_true", help="only how much of each file has changed")
    parser.add_argument(
        "--run", metavar="RUN", help="the id of a run or its first characters (default: newest)"
    )
    parser.add_argument("--no-pager", action="store_true", help="print to the terminal directly")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Compare and print."""
    from isolation.git.repository import Repository
    from runner.cli.logs.pager import print_lines
    from runner.core.text.screen import neutral
    from runner.run.control.reader import RunReader
    from runner.run.control.story_view import diff_of, story_view
    from runner.run.several.places import repository_of

    with RunReader(arguments.directory, arguments.run) as reader:
        view = story_view(reader, arguments.story)
    repository = repository_of(Repository.open(Path(arguments.directory)), view.run, view.story.id)
    text = diff_of(repository, view, stat=arguments.stat)
    output.document({"run_id": view.run.run_id, "story": view.story.id, "base": view.base, "diff": text})
    if not text:
        output.say(f"story {view.story.id} has changed nothing so far")
    elif not output.as_json:
        print_lines(map(neutral, text.removesuffix("\n").split("\n")), output, paged=not arguments.no_pager)
    return 0

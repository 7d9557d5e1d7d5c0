"""Show what would run: the start order, what waits for what and why, claims, slots and machine load.

Starts nothing and writes nothing.
"""

import argparse

from runner.cli.commands.run import run
from runner.cli.output import Output

EXAMPLE = "autopilot-multi plan --max-stories=3"

SEES_TREES = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `run`."""
    run.configure(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Plan as `run --dry-run` does."""
    arguments.dry_run = True
    return run.execute(arguments, output)

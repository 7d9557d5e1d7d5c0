"""Let the active run start stories again after `autopilot-multi pause`."""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi unpause"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `unpause`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Ask the active run."""
    from runner.run.control.requests import Unpause
    from runner.run.control.steering import Steering

    run_id = Steering(Path(arguments.directory)).send(Unpause()).run_id
    output.document({"run_id": run_id, "paused": False})
    output.answer(f"run {run_id} starts stories again")
    return 0

"""Start no more stories of the active run for now; sessions that run are not disturbed.

`autopilot-multi unpause` continues. A paused run stays active: it holds the repository, and its time counts.
"""

import argparse
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi pause"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `pause`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Ask the active run."""
    from runner.run.control.requests import Pause
    from runner.run.control.steering import Steering

    run_id = Steering(Path(arguments.directory)).send(Pause()).run_id
    output.document({"run_id": run_id, "paused": True})
    output.answer(f"paused run {run_id}: no new story starts until `autopilot-multi unpause`")
    return 0

"""Play one simulated run again: `python -m tests.simulation SEED`; prints what happened."""

import sys
import tempfile
from pathlib import Path

from runner.report.terminal.narration import line_for
from tests.simulation.checker import check
from tests.simulation.run import play


def main(seed: int) -> None:
    """Play, print and check."""
    with tempfile.TemporaryDirectory() as folder:
        played = play(seed, Path(folder))
    for event in played.events:
        line = line_for(event, played.run)
        sys.stdout.write(f"{event.at:9.1f} {line or type(event.body).__name__}\n")
    check(played)


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""How soon the program answers: `--help` and `status` beside an interpreter that does nothing."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import git

GATE = 4.0
ROUNDS = 15


def main() -> bool:
    """Measure and print; False when `--help` misses its gate."""
    program = str(Path(sys.executable).with_name("autopilot-multi"))
    commands = {
        "nothing": [sys.executable, "-c", "pass"],
        "--help": [program, "--help"],
        "status": [program, "status"],
        "Tab": [program, "__complete", "stories"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        git(Path(folder), "init", "-q")
        for _ in range(ROUNDS):  # interleaved, so that all meet the same noise
            for name, command in commands.items():
                began = time.perf_counter()
                subprocess.run(command, cwd=folder, capture_output=True, check=False)
                times[name].append(time.perf_counter() - began)
    median = {name: statistics.median(values) * 1000 for name, values in times.items()}
    ratio = median["--help"] / median["nothing"]
    print(  # noqa: T201  a benchmark prints
        f"start: python -c pass {median['nothing']:.0f} ms; "
        f"--help {median['--help']:.0f} ms, ratio {ratio:.2f} "
        f"(gate {GATE:g}); status {median['status']:.0f} ms, "
        f"ratio {median['status'] / median['nothing']:.2f}; ids on Tab {median['Tab']:.0f} ms"
    )
    return ratio <= GATE


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

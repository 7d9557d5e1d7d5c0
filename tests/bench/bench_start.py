"""How soon the program answers, beside an interpreter that does nothing.

`--help`, `status`, the ids on Tab, `plan`, and a run that has nothing to do. The last two are measured in a
repository with ten stories that are done, since both ask what earlier runs have done.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.acceptance.program import write_story
from tests.bench import record
from tests.conftest import begin_repository

GATES = {"--help": 4.0, "status": 6.0, "plan": 15.0, "nothing to do": 15.0}
ROUNDS = 15
NOTHING = "python -c pass"
STORIES = 10


def main() -> bool:
    """Measure and print; False when a command misses its gate."""
    program = str(Path(sys.executable).with_name("autopilot-multi"))
    commands = {
        NOTHING: [sys.executable, "-c", "pass"],
        "--help": [program, "--help"],
        "status": [program, "status"],
        "plan": [program, "plan"],
        "nothing to do": [program, "--trust"],
        "ids on Tab": [program, "__complete", "stories"],
    }
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times: dict[str, list[float]] = {name: [] for name in commands}
    spent: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "repo")
        begin_repository(root)
        for number in range(STORIES):
            write_story(root, f"s{number}", command=f"echo {number} > f{number}")
        subprocess.run(commands["nothing to do"], cwd=root, capture_output=True, check=True, env=env)
        for _ in range(ROUNDS):  # interleaved, so that all meet the same noise
            for name, command in commands.items():
                before, began = _processor(), time.perf_counter()
                subprocess.run(command, cwd=root, capture_output=True, check=True, env=env)
                times[name].append(time.perf_counter() - began)
                spent[name].append(_processor() - before)
    for name in (name for name in commands if name != NOTHING):
        for kind, took in (("", times), ("processors, ", spent)):
            ratios = [ours / nothing for ours, nothing in zip(took[name], took[NOTHING], strict=True)]
            record.compare("start", f"{kind}{name} / {NOTHING}", ratios, None if kind else GATES.get(name))
    median = {name: statistics.median(values) * 1000 for name, values in times.items()}
    nothing = median.pop(NOTHING)
    told = "; ".join(
        f"{name} {took:.0f} ms, ratio {took / nothing:.1f}"
        + (f" (gate {GATES[name]:g})" if name in GATES else "")
        for name, took in median.items()
    )
    print(f"start: python -c pass {nothing:.0f} ms; {told}")  # noqa: T201  a benchmark prints
    return all(median[name] / nothing <= gate for name, gate in GATES.items())


def _processor() -> float:
    """Return the processor time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

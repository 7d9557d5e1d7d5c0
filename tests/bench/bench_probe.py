"""What a look at the machine costs: a first sample, later ones, and one pass of psutil over all processes.

The first looks for other agents among all processes; later ones do so every five seconds at most. The
ways take turns, so that what else the machine does falls on all of them alike.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from runner.agents.catalog import PROGRAMS
from runner.machine.probe import Probe
from tests.bench import record

GATE_MS = 20.0
ROUNDS = 50


def every_process() -> int:
    """Go through all processes as psutil would have it."""
    return len(list(psutil.process_iter(["name", "cmdline"])))


def main() -> bool:
    """Measure and print; False when a first sample misses its gate."""
    place, again = Path.cwd(), Probe(PROGRAMS)
    ways: dict[str, Callable[[], object]] = {
        "first": lambda: Probe(PROGRAMS)(place),
        "later": lambda: again(place),
        "psutil": every_process,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, once in ways.items():
            began = time.perf_counter()
            once()
            times[way].append(time.perf_counter() - began)
    median = {way: statistics.median(values) * 1000 for way, values in times.items()}
    print(  # noqa: T201  a benchmark prints
        f"probe: first sample {median['first']:.1f} ms (gate {GATE_MS:g} ms), "
        f"later {median['later']:.1f} ms, with {every_process()} processes; "
        f"psutil over all of them {median['psutil']:.1f} ms, "
        f"ratio {median['first'] / median['psutil']:.2f} and {median['later'] / median['psutil']:.2f}"
    )
    for way in ("first", "later"):
        ratios = [mine / peer for mine, peer in zip(times[way], times["psutil"], strict=True)]
        record.compare("probe", f"{way} sample / psutil over all processes", ratios)
    return median["first"] <= GATE_MS


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

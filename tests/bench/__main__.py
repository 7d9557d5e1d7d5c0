"""`make bench`: every comparison in one go and in one table.

`--quick` leaves out what takes long and gates nothing. `--json` prints the results as JSON. The table shows
each ratio beside the last stored one; `--store FILE` names another file for that than the user's. Names of
benchmarks run only those.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from tests.bench import record

BENCHES = (
    "bench_start",
    "bench_keeper",
    "bench_probe",
    "bench_state",
    "bench_shards",
    "bench_claims",
    "bench_guard",
    "bench_streams",
    "bench_busy",
    "bench_run",
    "bench_pool",
    "bench_overlay",
    "bench_workspaces",
    "bench_shared",
    "bench_stories",
    "bench_schedule",
    "bench_crossings",
    "bench_land",
    "bench_forecast",
    "bench_many_runs",
    "bench_web",
    "bench_cluster",
)
QUICK = ("bench_start", "bench_keeper", "bench_probe")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks, print the table and store it; exit 1 when a gate was missed, unless quick."""
    options = _options(arguments)
    names = [f"bench_{name}" for name in options.only] or (QUICK if options.quick else BENCHES)
    missed = [name for name in names if import_module(f"tests.bench.{name}").main() is False]
    sys.stdout.write(f"\n{record.table(options.store)}\n")
    if not options.quick:
        record.store(options.store)
        sys.stdout.write(f"stored in {options.store}\n")
    if options.json:
        found = {"rows": [*map(asdict, record.ROWS)], "points": [*map(asdict, record.POINTS)]}
        sys.stdout.write(json.dumps(found) + "\n")
    if missed and not options.quick:
        sys.stdout.write(f"missed its gate: {', '.join(missed)}\n")
        return 1
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--store", type=Path, default=record.store_path())
    known = [name.removeprefix("bench_") for name in BENCHES]
    parser.add_argument("only", nargs="*", metavar="NAME", help=", ".join(known))
    options = parser.parse_args(arguments)
    unknown = set(options.only) - set(known)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`make bench`: every ratio in one go; `--quick` leaves out what takes long and gates nothing."""

import sys
from importlib import import_module

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
    "bench_shared",
    "bench_stories",
    "bench_schedule",
    "bench_crossings",
    "bench_land",
    "bench_forecast",
    "bench_many_runs",
)
QUICK = ("bench_start", "bench_keeper", "bench_probe")


def main(arguments: list[str]) -> int:
    """Run the benchmarks; exit 1 when a gate was missed, unless quick."""
    quick = "--quick" in arguments
    missed = [
        name for name in (QUICK if quick else BENCHES) if import_module(f"tests.bench.{name}").main() is False
    ]
    if missed and not quick:
        sys.stdout.write(f"missed its gate: {', '.join(missed)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

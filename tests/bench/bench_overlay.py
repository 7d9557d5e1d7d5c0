"""Worktrees as layers over one checkout beside `git worktree add`, on 7,000 and 60,000 files.

The whole program, from its start until all 8 stories run, to eight plain adds at once: the first run of a
repository, which makes the checkout below (cold), and the next one, which finds it and looks at every file of
it (warm). The gate is 0.15 for warm on 60,000 files.
"""

import sys
from pathlib import Path
from statistics import median

from tests.bench import record
from tests.bench.bench_pool import LARGE, SIZES, STORIES, adds_at_once, prepare, two_runs
from tests.bench.disk import journaled

WARM = 0.15


def main() -> bool:
    """Measure and print; False when a gate is missed."""
    sizes = [int(each) for each in sys.argv[1:] if each.isdigit()] or list(SIZES)
    with journaled() as folder:
        held = [_measure(folder / str(files), files) for files in sizes]
    return all(held)


def _measure(folder: Path, files: int) -> bool:
    repo = folder / "repo"
    prepare(repo, files)
    found: dict[str, list[float]] = {"cold": [], "warm": []}
    for number in range(SIZES[files]):
        plain = adds_at_once(repo, STORIES, f"plain-{number}")
        runs = two_runs(repo, folder / f"ours-{number}", STORIES, "--workspace=overlay")
        for name, (_, last) in zip(found, runs, strict=True):
            found[name].append(last / plain)
    for name, ratios in found.items():
        gate = WARM if name == "warm" and files >= LARGE else None
        record.compare("overlay", f"{files:,} files: all 8 run, {name} / adds at once", ratios, gate)
        spread = f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        shown = f"{spread}{f', gate {gate:g}' if gate else ''}"
        print(f"overlay, {files} files, all 8 run, {name} / adds at once: {shown}", flush=True)  # noqa: T201  a benchmark prints
    return files < LARGE or median(found["warm"]) <= WARM


if __name__ == "__main__":
    sys.exit(not main())

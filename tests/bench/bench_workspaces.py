"""Until N workspaces are there: the program beside other ways to make worktrees, at several sizes.

Everything is divided by N plain `git worktree add` at once, in the same round: adds one after another, GNU
parallel and xargs at one process per core, `git gtr` and worktrunk where they are installed, and the program
from its start until all N stories run, at its first run (cold) and at the next one (warm, with the trees of
the first).

Each size and number has a file system of its own, so that nothing is deleted on one that is measured.

`python -m tests.bench.bench_workspaces --sizes=1000,10000 --counts=1,8 --rounds=3` chooses what is measured.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.bench import record
from tests.bench.bench_pool import adds_at_once, prepare, two_runs
from tests.bench.disk import journaled
from tests.conftest import git

CORES = str(os.cpu_count() or 1)
PEERS = {
    "GNU parallel": ["parallel", "-j", CORES, "git worktree add -q -b {} ../{} main", ":::"],
    "xargs": ["xargs", "-P", CORES, "-I{}", "git", "worktree", "add", "-q", "-b", "{}", "../{}", "main"],
    "git gtr": ["git-gtr", "new", "{}", "--from", "main", "--no-fetch", "--yes"],
    "worktrunk": ["wt", "switch", "--create", "{}", "--no-cd", "--yes"],
}


def main(arguments: Sequence[str] = ()) -> bool:
    """Measure and record; it has no gates."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-workspaces-") as folder:
        for size in options.sizes:
            template = Path(folder) / str(size)
            prepare(template, size)
            for count in options.counts:
                if size * count > options.most_files:
                    record.left_out("workspaces", f"{size:,} files, N={count}", "--most-files is smaller")
                    continue
                _measure(template, size, count, options.rounds)
    return True


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=_numbers, default=(1_000, 10_000, 60_000))
    parser.add_argument("--counts", type=_numbers, default=(1, 3, 8, 32))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most-files", type=int, default=500_000, help="files in all trees of one way")
    return parser.parse_args(arguments)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _measure(template: Path, size: int, count: int, rounds: int) -> None:
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        with journaled() as folder:
            git(folder, "clone", "-q", "--no-hardlinks", str(template), str(folder / "repo"))
            plain = adds_at_once(folder / "repo", count, "plain")
            for name, way in _ways(folder / "repo", count).items():
                found.setdefault(f"{name} / adds at once", []).append(way() / plain)
            cold, warm = two_runs(folder / "repo", folder / f"ours-{number}", count)
            for name, took in (("cold", cold), ("warm", warm)):
                found.setdefault(f"program, {name} / adds at once", []).append(took[1] / plain)
    for name, ratios in found.items():
        record.compare("workspaces", f"{size:,} files, N={count}: {name}", ratios)
    for name, argv in PEERS.items():
        if shutil.which(argv[0]) is None:
            record.left_out("workspaces", f"{size:,} files, N={count}: {name}", f"{argv[0]} is not installed")


def _ways(top: Path, count: int) -> dict[str, Callable[[], float]]:
    """Return the peers that are here; each makes the worktrees and returns how long that took."""
    ways: dict[str, Callable[[], float]] = {"adds in sequence": partial(_in_sequence, top, count)}
    for name, argv in PEERS.items():
        if shutil.which(argv[0]) is not None:
            ways[name] = partial(_by_peer, top, count, name, argv)
    return ways


def _in_sequence(top: Path, count: int) -> float:
    began = time.perf_counter()
    for each in range(count):
        git(top, "worktree", "add", "-q", "-b", f"sequence-{each}", f"../sequence-{each}", "main")
    return time.perf_counter() - began


def _by_peer(top: Path, count: int, name: str, argv: Sequence[str]) -> float:
    """Let a peer make the worktrees: all of them in one command, or one command for each."""
    names = [f"{name.replace(' ', '-')}-{each}" for each in range(count)]
    began = time.perf_counter()
    if argv[0] in {"parallel", "xargs"}:
        given = names if argv[0] == "parallel" else []
        # Two adds at once can fail in git itself, which is theirs to bear; what counts is the time.
        subprocess.run(
            [*argv, *given], cwd=top, input="\n".join(names), text=True, capture_output=True, check=False
        )
    else:
        for each in names:
            command = [part.replace("{}", each) for part in argv]
            subprocess.run(command, cwd=top, capture_output=True, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.write(record.table(record.store_path()) + "\n")

"""What a story costs: N stories that each change one file, window 8, beside GNU parallel around plain git.

Four ways take turns: GNU parallel that runs `git worktree add`, the command, `git commit` and `git worktree
remove` at several widths, of which the fastest counts; GNU parallel on the bare commands; the program with a
worktree per story; the program in the one shared tree. Each round has repositories of its own, and nothing
is deleted between them (see `bench_run`). The clock and the processor time of all processes are printed;
the gates are on the clock, since both sides meet the same noise.

`python -m tests.bench.bench_stories --stories=1000 --rounds=3 --growth=100,3000` measures at full size.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from tests.acceptance.program import command
from tests.bench import record
from tests.bench.disk import journaled
from tests.conftest import begin_repository

WINDOW = 8
IN_ONE_TREE = ("--bg-isolation=none", "--deconflict-paths={id}.txt")
FILES = 100
GATES = {
    "worktrees / git": 1.0,
    "shared tree / git": 0.5,
    "shared tree / bare": 5.0,
    "growth": 1.2,
    "coordinator MiB": 120.0,
}
_ENVIRONMENT = {"AUTOPILOT_MULTI_TRUST": "always"}


@dataclass(frozen=True, slots=True)
class Took:
    """What one way took: seconds on the clock, of the processors, and the largest process in MiB."""

    seconds: float
    processor: float
    largest: float = 0.0


def main(arguments: Sequence[str] = ()) -> bool:
    """Measure and print; False when a gate is missed."""
    options = _options(arguments)
    if shutil.which("parallel") is None:
        record.left_out("stories", "all", "GNU parallel is not installed")
        return True
    with journaled() as folder:
        places = (folder / f"r{number}" for number in range(10_000))
        _program(_prepare(next(places), 2), 2)  # writes the bytecode
        rounds = [_round(places, options.stories, options.widths) for _ in range(options.rounds)]
        grown, peaks = _grown(places, options.growth, options.rounds)
        _curves(places, options.curves)
    found = _ratios(rounds)
    if grown:
        found |= {"growth": grown, "coordinator MiB": [*found["coordinator MiB"], *peaks]}
    for name, values in found.items():
        gate = GATES.get(name)
        record.compare("stories", f"{options.stories}: {name}", values, gate)
        shown = f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
        print(f"stories: {name}: {shown}{f', gate {gate:g}' if gate else ''}")  # noqa: T201
    for name in rounds[0]:
        each = [found[name] for found in rounds]
        clock = median(took.seconds for took in each) / options.stories * 1000
        spent = median(took.processor for took in each) / options.stories * 1000
        print(f"stories: {name}: {clock:.1f} ms a story, processors {spent:.1f} ms")  # noqa: T201
    return all(median(values) <= GATES[name] for name, values in found.items() if name in GATES)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stories", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--widths", type=_numbers, default=(2, 8))
    parser.add_argument("--growth", type=_numbers, default=())
    parser.add_argument("--curves", type=_numbers, default=(10, 30, 100, 300))
    return parser.parse_args(arguments)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _curves(places: Iterator[Path], sizes: Sequence[int]) -> None:
    """Record what a story costs at each size, in processor time, for the plot of how cost grows."""
    for size in sizes:
        for name, took in _round(places, size, (2,)).items():
            record.point(name.removesuffix(" -j2"), size, took.processor / size * 1000)


def _round(places: Iterator[Path], stories: int, widths: Sequence[int]) -> dict[str, Took]:
    ways: dict[str, Callable[[Path], Took]] = {
        **{f"git -j{width}": partial(_git, stories=stories, width=width) for width in widths},
        "bare": lambda root: _bare(root, stories),
        "worktrees": lambda root: _program(root, stories),
        "shared tree": lambda root: _program(root, stories, *IN_ONE_TREE),
    }
    return {name: way(_prepare(next(places), stories)) for name, way in ways.items()}


def _ratios(rounds: Sequence[dict[str, Took]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for each in rounds:
        git = min(
            (took for name, took in each.items() if name.startswith("git ")), key=lambda one: one.seconds
        )
        ours, shared, bare = each["worktrees"], each["shared tree"], each["bare"]
        for name, value in (
            ("worktrees / git", ours.seconds / git.seconds),
            ("shared tree / git", shared.seconds / git.seconds),
            ("shared tree / bare", shared.seconds / bare.seconds),
            ("processors, worktrees / git", ours.processor / git.processor),
            ("processors, shared tree / git", shared.processor / git.processor),
            ("processors, shared tree / bare", shared.processor / bare.processor),
            ("coordinator MiB", max(ours.largest, shared.largest)),
        ):
            found.setdefault(name, []).append(value)
    return found


def _grown(places: Iterator[Path], sizes: Sequence[int], rounds: int) -> tuple[list[float], list[float]]:
    """Return how much a story of many costs beside one of few in the shared tree, and the largest process."""
    found, peaks = [], []
    for _ in range(rounds if sizes else 0):
        took = [_program(_prepare(next(places), size), size, *IN_ONE_TREE) for size in sizes]
        costs = [each.seconds / size for each, size in zip(took, sizes, strict=True)]
        found.append(costs[-1] / costs[0])
        peaks.append(took[-1].largest)
    return found, peaks


def _prepare(root: Path, stories: int) -> Path:
    begin_repository(root)
    for number in range(FILES):
        folder = root / f"d{number % 10}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{number:03}.txt").write_text(f"{number}\n" * 20)
    entries = [
        {"id": name, "title": name, "command": f"echo {name} > {name}.txt", "owns": [f"{name}.txt"]}
        for name in map(_name, range(stories))
    ]
    (root / "stories.json").write_text(json.dumps({"stories": entries}))
    for args in (["add", "-A"], ["commit", "-q", "-m", "begin"]):
        subprocess.run(["git", *args], cwd=root, check=True)
    return root


def _name(number: int) -> str:
    return f"s{number:04}"


def _git(root: Path, stories: int, width: int) -> Took:
    """GNU parallel around plain git, which fails where two worktrees come and go at once: it tries again."""
    tree = f"{root}.trees/{{}}"
    line = (
        f"until git worktree add -q -B {{}} {tree}; do rm -rf {tree}; done; "
        f"cd {tree} && echo {{}} > {{}}.txt; "
        f"until git add -A && git commit -q -m {{}}; do :; done; "
        f"cd {root}; until git worktree remove {tree}; do :; done"
    )
    took = _timed(["parallel", "--timeout=60", f"-j{width}", line, ":::", *map(_name, range(stories))], root)
    branches = subprocess.run(["git", "branch", "--list", "s*"], cwd=root, check=True, capture_output=True)
    assert len(branches.stdout.splitlines()) == stories
    return took


def _bare(root: Path, stories: int) -> Took:
    return _timed(["parallel", f"-j{WINDOW}", "echo {} > {}.txt", ":::", *map(_name, range(stories))], root)


def _program(root: Path, stories: int, *flags: str) -> Took:
    args = command("stories.json", f"--max-stories={WINDOW}", "--window=fixed", "-q", "--json", *flags)
    peak: list[float] = []
    took = _timed(args, root, peak)
    states = [
        story["status"]
        for story in json.loads((root.parent / f"{root.name}.out").read_text())["data"]["stories"]
    ]
    assert states == ["done"] * stories, states
    return Took(took.seconds, took.processor, max(peak, default=0.0))


def _timed(args: Sequence[str], root: Path, peak: list[float] | None = None) -> Took:
    env = {**os.environ, **_ENVIRONMENT}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    answer, errors = (root.parent / f"{root.name}.{kind}" for kind in ("out", "err"))
    with answer.open("wb") as out, errors.open("wb") as err:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = subprocess.Popen(args, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        while peak is not None and process.poll() is None:
            peak.append(_peak_of(process.pid))
            time.sleep(0.2)
        process.wait()
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == 0, (errors.read_text()[-2000:], answer.read_text()[-2000:])
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(seconds, spent)


def _peak_of(pid: int) -> float:
    """Return the most memory that a process has had, in MiB."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)

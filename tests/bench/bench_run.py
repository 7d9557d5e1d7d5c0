"""30 stories of 100 ms, window 3: the program beside GNU parallel in ready-made worktrees.

The ideal is 1.0 s of work. Workspace time is what plain git needs to add 30 worktrees and then to remove
them, one after another, measured in the same round. Two ratios have a gate of 1.25:

- the run, from its first record to its last, to ideal + workspace time;
- the whole program, from its start to its exit, to the same and what Python needs to load the libraries that
  the program stands on.

The whole program to ideal + workspace time alone is printed beside them. The program has its bytecode, as an
installed one has. The medians of nine interleaved rounds count, since machines are noisy.

Each of the three works in a repository of its own, and nothing is deleted between the rounds. Whoever removes
worktrees leaves that to the next; so git and the program take turns in being first.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

from tests.acceptance.program import command, write_story
from tests.bench import record
from tests.bench.disk import journaled
from tests.conftest import git

STORIES, WINDOW, SECONDS, ROUNDS = 30, 3, 0.1, 9
GATE = 1.25
LOADING = (sys.executable, "-c", "import trio, git, pydantic, psutil, yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round took, in seconds."""

    workspace: float
    loading: float
    parallel: float | None
    whole: float
    run: float

    @property
    def least(self) -> float:
        """The work itself and the workspaces."""
        return STORIES * SECONDS / WINDOW + self.workspace


def main() -> bool:
    """Measure and print; False when a gate is missed."""
    with journaled() as folder:
        _round(folder, 0)  # the first one writes the bytecode
        rounds = [_round(folder, number) for number in range(1, ROUNDS + 1)]
    ratios = {
        "run / ideal and worktrees": [each.run / each.least for each in rounds],
        "program / ideal, worktrees and loading": [
            each.whole / (each.least + each.loading) for each in rounds
        ],
        "program / ideal and worktrees": [each.whole / each.least for each in rounds],
    }
    for name, gate in zip(ratios, (GATE, GATE, None), strict=True):
        record.compare("run", f"30 of 100 ms, {name}", ratios[name], gate)
    run, whole, bare = map(_spread, ratios.values())
    peers = [each.parallel for each in rounds if each.parallel]
    beside = [each.whole / (each.parallel + each.workspace) for each in rounds if each.parallel]
    if beside:
        record.compare("run", "30 of 100 ms, program / GNU parallel and worktrees", beside)
    else:
        record.left_out("run", "30 of 100 ms, program / GNU parallel", "GNU parallel is not installed")
    peer = (
        f"{median(peers):.2f} s, ratio with the worktrees {median(beside):.2f}" if peers else "not installed"
    )
    names = ("run", "whole", "workspace", "loading")
    seconds = ", ".join(f"{name} {median(getattr(each, name) for each in rounds):.2f} s" for name in names)
    print(  # noqa: T201  a benchmark prints
        f"run: 30 stories of 100 ms, window 3: {seconds}, ideal 1.00 s; ratio of the run {_shown(run)}, "
        f"of the whole program {_shown(whole)}, gates {GATE}; without the loading {_shown(bare)}; "
        f"GNU parallel in ready-made worktrees {peer}"
    )
    return run[1] <= GATE and whole[1] <= GATE


def _spread(ratios: Iterable[float]) -> tuple[float, float, float]:
    """Return the least, the median and the largest."""
    found = sorted(ratios)
    return found[0], median(found), found[-1]


def _shown(spread: tuple[float, float, float]) -> str:
    least, middle, largest = spread
    return f"{middle:.2f} ({least:.2f} to {largest:.2f})"


def _round(folder: Path, number: int) -> Round:
    plain, ready, ours = (folder / f"{name}-{number}" / "repo" for name in ("plain", "ready", "ours"))
    for root in (plain, ready, ours):
        _prepare(root)
    parallel = _parallel(ready) if shutil.which("parallel") else None
    workspace = _timed(lambda: _plain_worktrees(plain)) if number % 2 else 0.0
    began = time.perf_counter()
    run = _program(ours, folder / "bytecode")
    whole = time.perf_counter() - began
    workspace = workspace or _timed(lambda: _plain_worktrees(plain))
    loading = _timed(lambda: subprocess.run(LOADING, check=True, env=_env(folder / "bytecode")))
    return Round(workspace=workspace, loading=loading, parallel=parallel, whole=whole, run=run)


def _prepare(root: Path) -> None:
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    for name, value in (("user.name", "Bench"), ("user.email", "bench@example.com")):
        git(root, "config", name, value)
    for number in range(STORIES):
        write_story(root, f"s{number:02}", command=f"sleep {SECONDS}; echo x > s{number}.txt")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")


def _env(bytecode: Path) -> dict[str, str]:
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


def _program(root: Path, bytecode: Path) -> float:
    """Run the program, and give how long the run itself took."""
    env = _env(bytecode)
    args = command(f"--max-stories={WINDOW}", "-q", "--json")
    done = subprocess.run(args, cwd=root, check=True, capture_output=True, env=env)
    data = json.loads(done.stdout)["data"]
    began, ended = (datetime.fromisoformat(data[name]) for name in ("started_at", "ended_at"))
    return (ended - began).total_seconds()


def _plain_worktrees(root: Path) -> None:
    """Add and remove as many worktrees with plain git, which fails when two do it at once."""
    paths = [root.parent / f"plain-{number}" for number in range(STORIES)]
    for path in paths:
        git(root, "worktree", "add", "-q", "-b", path.name, str(path))
    for path in paths:
        git(root, "worktree", "remove", str(path))


def _parallel(root: Path) -> float:
    """Return how long GNU parallel takes in worktrees that are there already."""
    trees = root.parent / "ready"
    for number in range(STORIES):
        git(root, "worktree", "add", "-q", "--detach", str(trees / str(number)))
    line = f"cd {trees}/{{}} && sleep {SECONDS} && echo x > x.txt && git add -A && git commit -q -m x"
    args = ["parallel", f"-j{WINDOW}", line, ":::", *(str(number) for number in range(STORIES))]
    return _timed(lambda: subprocess.run(args, check=True, stderr=subprocess.DEVNULL))


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

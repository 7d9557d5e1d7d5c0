"""Worktrees from the pool beside `git worktree add`, on 7,000 and 60,000 files.

One workspace, by the functions that a run uses: what a story waits for when it claims a spare, and what it
costs to recycle the tree of a finished story, to the time of a plain add. The gates on 60,000 files are
0.02 and 0.2.

The whole program, from its start until all 8 stories run, to eight plain adds at once: the first run of a
repository (cold), and the next one, which finds the trees of the first in the pool and looks at every file of
them (warm). Gates for warm: 0.30 on 7,000 files, 0.12 on 60,000; for cold 1.1, and the first story of a cold
run runs within 1.5 times a plain add.

Nothing is deleted between the rounds, and each begins when what was written before is on the disk.
`python -m tests.bench.bench_pool PATH …` measures clones of real repositories instead.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

import trio

from isolation.git.repository import Repository
from isolation.model import Workspace, WorkspaceRequest
from isolation.paths import worktree_path, worktree_root
from isolation.worktree.opening import create_or_attach
from isolation.worktree.pool.making import recycle
from isolation.worktree.pool.pool import Pool
from isolation.worktree.removal import close
from tests.acceptance.program import command, write_story
from tests.bench import record
from tests.bench.disk import journaled
from tests.conftest import git

STORIES = 8
SIZES = {7_000: 3, 60_000: 2}
"""How many rounds for how many files."""

CLAIMED, RECYCLED = 0.02, 0.2
COLD, FIRST = 1.1, 1.5
WARM = {7_000: 0.30, 60_000: 0.12}
LARGE = 60_000
"""From how many files on a repository has the gates of a large one."""
TEXT = "".join(f"line {number} of some source text\n" for number in range(200))


def main() -> bool:
    """Measure and print; False when a gate is missed."""
    sizes = [int(each) for each in sys.argv[1:] if each.isdigit()]
    repositories = [Path(each) for each in sys.argv[1:] if Path(each).is_dir()]
    held = []
    with journaled() as folder:
        for files in sizes or ([] if repositories else SIZES):
            prepare(folder / str(files) / "repo", files)
            held.append(_measure(folder / str(files), f"{files:,} files", files))
        for number, each in enumerate(repositories):
            files = _clone(each, folder / f"real-{number}" / "repo")
            held.append(_measure(folder / f"real-{number}", f"{each.name}, {files:,} files", files))
    return all(held)


def _clone(source: Path, top: Path) -> int:
    """Make a clone, with its commit as `main`, and return how many files that has."""
    git(source, "clone", "-q", "--no-hardlinks", "--single-branch", str(source), str(top))
    for name, value in (("user.name", "Bench"), ("user.email", "bench@example.com"), ("gc.auto", "0")):
        git(top, "config", name, value)
    git(top, "checkout", "-q", "-B", "main")
    return len(git(top, "ls-files").splitlines())


def _measure(folder: Path, name_of_repository: str, files: int) -> bool:
    repo, large = folder / "repo", files >= LARGE
    rounds = SIZES[LARGE if large else min(SIZES)]
    one = [_one(repo, number) for number in range(rounds)]
    many = [_round(repo, folder, number) for number in range(rounds)]
    found = {
        "one workspace, claimed / plain add": (
            [each[1] / each[0] for each in one],
            CLAIMED if large else None,
        ),
        "one workspace, recycled / plain add": (
            [each[2] / each[0] for each in one],
            RECYCLED if large else None,
        ),
        "first of 8 runs, cold / plain add": (
            [each.cold[0] / alone[0] for each, alone in zip(many, one, strict=True)],
            FIRST,
        ),
        "all 8 run, cold / adds at once": ([each.cold[1] / each.plain for each in many], COLD),
        "all 8 run, warm / adds at once": (
            [each.warm[1] / each.plain for each in many],
            WARM[LARGE if large else min(SIZES)],
        ),
    }
    for name, (ratios, gate) in found.items():
        record.compare("pool", f"{name_of_repository}: {name}", ratios, gate)
        shown = f"{_shown(ratios)}{f', gate {gate:g}' if gate else ''}"
        print(f"pool, {name_of_repository}, {name}: {shown}", flush=True)  # noqa: T201  a benchmark prints
    return all(gate is None or median(ratios) <= gate for ratios, gate in found.values())


def _shown(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def prepare(top: Path, files: int) -> None:
    top.mkdir(parents=True)
    git(top, "init", "-q", "-b", "main")
    for name, value in (("user.name", "Bench"), ("user.email", "bench@example.com"), ("gc.auto", "0")):
        git(top, "config", name, value)
    for number in range(files):
        folder = top / f"d{number // 520}" / f"e{number // 13}"
        if number % 13 == 0:
            folder.mkdir(parents=True)
        (folder / f"f{number}.py").write_text(f"# {number}\n{TEXT[: number * 7919 % 5200]}")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "first")
    git(top, "gc", "-q")


def _one(top: Path, number: int) -> tuple[float, float, float]:
    """Return what a plain add, a claim and a recycling take."""
    repository = Repository.open(top)
    root, base = worktree_root(repository.common_dir), repository.resolve("main")
    pool = Pool(repository=repository, root=root, run_id=f"bench-{number}", size=STORIES, guarded=True)
    plain = _timed(partial(_plain_add, top, f"one-{number}"))

    def opened(name: str) -> Workspace:
        story = f"{name}-{number}"
        request = WorkspaceRequest(
            run_id=pool.run_id,
            story_id=story,
            branch=f"autopilot/{story}",
            path=worktree_path(root, story),
            parents=(base,),
        )

        async def create() -> Workspace:
            return await create_or_attach(repository, request, trio.CapacityLimiter(2), pool=pool)

        return trio.run(create)

    workspace = opened("cold")
    _work(workspace.path)
    trio.run(partial(close, repository, workspace, sweep=False, reuse=pool.accept))
    (path,) = root.glob("_spare-*")
    recycled = _timed(partial(recycle, repository, path, base, pool.run_id, guarded=True))
    claimed = _timed(partial(opened, "claimed"))
    if path.exists() or not (root / f"claimed-{number}").exists():
        raise AssertionError("the tree was not recycled, or not claimed")
    return plain, claimed, recycled


def _work(tree: Path) -> None:
    """Do what a story does: change and commit some files, and leave others."""
    files = (tree / name for name in git(tree, "ls-files", "-z").split("\0") if name)
    for path in islice((path for path in files if path.is_file() and not path.is_symlink()), 20):
        path.write_text("changed\n")
    git(tree, "commit", "-q", "-a", "-m", "work")
    (tree / "built").mkdir()
    for number in range(200):
        (tree / "built" / f"{number}.o").touch()
    git(tree, "add", "-A", "-f")
    git(tree, "commit", "-q", "-m", "more")


def _plain_add(top: Path, name: str) -> None:
    git(top, "worktree", "add", "-q", "-b", f"plain/{name}", str(top.parent / "plain" / name), "main")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Seconds: eight plain adds; until the first and until all stories of a first and of a next run run."""

    plain: float
    cold: tuple[float, float]
    warm: tuple[float, float]


def adds_at_once(top: Path, count: int, name: str) -> float:
    """Return how long it takes to add worktrees with plain git, all at once."""
    os.sync()
    began = time.perf_counter()
    adds = [
        subprocess.Popen(
            ["git", "worktree", "add", "-q", "-b", f"{name}/{each}", f"../{name}/{each}", "main"], cwd=top
        )
        for each in range(count)
    ]
    for add in adds:
        add.wait()
    return time.perf_counter() - began


def _round(top: Path, folder: Path, number: int) -> Round:
    """Return what eight plain adds, a first run and the next one take until all stories run."""
    plain = adds_at_once(top, STORIES, f"plain-{number}")
    cold, warm = two_runs(top, folder / f"ours-{number}", STORIES)
    return Round(plain=plain, cold=cold, warm=warm)


def two_runs(
    top: Path, folder: Path, count: int, *flags: str
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Run as many stories twice in a clone, and return when the first and the last ran of each run."""
    ours = folder / "repo"
    ours.parent.mkdir()
    git(ours.parent, "clone", "-q", "--local", str(top), str(ours))
    for name, value in (("user.name", "Bench"), ("user.email", "bench@example.com")):
        git(ours, "config", name, value)
    started = Path(tempfile.mkdtemp(dir=ours.parent))
    for story in (f"{name}-{each}" for name in ("cold", "warm") for each in range(count)):
        write_story(ours, story, command=f"date +%s%N > {started}/{story}; echo {story} > {story}.txt")
    git(ours, "add", "-A")
    git(ours, "commit", "-q", "-m", "stories")
    cold, warm = (until_all_run(ours, name, started, count, *flags) for name in ("cold", "warm"))
    return cold, warm


def until_all_run(top: Path, name: str, started: Path, count: int, *flags: str) -> tuple[float, float]:
    """Run the stories of this name, and return when the first and the last of them had started."""
    ids = [f"{name}-{number}" for number in range(count)]
    args = command(*ids, f"--max-stories={count}", "--window=fixed", "-q", *flags)
    env = {**os.environ, "AUTOPILOT_MULTI_TRUST": "always"}
    os.sync()  # it waits for the disk, and would wait for what others have written
    began = time.time()
    subprocess.run(args, cwd=top, check=True, capture_output=True, env=env)
    times = [int((started / story).read_text()) / 1e9 - began for story in ids]
    return min(times), max(times)


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(not main())

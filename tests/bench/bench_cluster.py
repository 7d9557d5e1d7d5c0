"""Stories on a cluster beside what their sessions alone would take: 200 of one second, 4 workers of 2 slots.

The time is that from the first placing to the last result, to the ideal of as many slots that never wait. The
gate is 1.15. All workers are on this machine, which also pays for four clones and for the coordinator: with
fewer cores than slots the ratio says more about the machine than about the cluster. So the same stories run
without a cluster, too, in as many slots, and the processor time per story of both is shown. `bench_cluster N`
takes another number of stories.

Then: how long a line of a session takes to the coordinator (gate 1 s), and the memory of a coordinator with
32 workers that each have a sleeping story (gate 200 MiB).
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.bench import record
from tests.bench.disk import journaled
from tests.cluster.machines import Machines, events, machines, moments
from tests.conftest import begin_repository

STORIES, WORKERS, SLOTS, SECONDS = 200, 4, 2, 1.0
GATE = 1.15
LINES, SEEN_GATE = 40, 1.0
MANY, MEMORY_GATE = 32, 200.0

_MANY_WORKERS = """
import asyncio, sys
from distributed import Worker
async def main():
    names = sys.argv[2:]
    options = {"nthreads": 1, "memory_limit": 0, "preload": ["runner.remote.cluster.worker.preload"]}
    workers = [await Worker(sys.argv[1], name=name, **options) for name in names]
    print("joined", flush=True)
    await asyncio.gather(*(worker.finished() for worker in workers))
asyncio.run(main())
"""
"""Several workers in one process: what counts here is the coordinator's memory."""


def main() -> bool:
    """Measure and print; False when a gate is missed."""
    count = next((int(each) for each in sys.argv[1:] if each.isdigit()), STORIES)
    held = [_in_a_folder(bench) for bench in (lambda folder: _overhead(folder, count), _seen, _memory)]
    return all(held)


def _in_a_folder(bench: Callable[[Path], bool]) -> bool:
    with journaled() as folder:
        return bench(folder)


def _overhead(folder: Path, count: int) -> bool:
    cluster = ("--cluster", f"local:{WORKERS}", f"--max-stories={SLOTS}")
    ways = {"cluster": cluster, "local": (f"--max-stories={WORKERS * SLOTS}",)}
    ideal, took = count * SECONDS / (WORKERS * SLOTS), {}
    for way, flags in ways.items():
        repo = folder / way
        begin_repository(repo)
        for number in range(count):
            name = f"s{number:03}"
            write_story(repo, name, command=f"sleep {SECONDS}; echo {number} > {name}")
        commit_stories(repo)
        before = _processor_seconds()
        env = {"XDG_DATA_HOME": str(folder / "share")}
        ran = run(repo, *flags, "--window", "fixed", env=env, limit=1800.0, real_start=True)
        if ran.code != 0:
            raise RuntimeError(ran.err[-2000:])
        cost = (_processor_seconds() - before) / count
        finished = moments(repo, "StoryFinished")
        took[way] = max(finished) - min(moments(repo, "StoryPlaced") or moments(repo, "StoryStarted"))
        longest = max((later - earlier for earlier, later in pairwise(sorted(finished))), default=0.0)
        sys.stdout.write(
            f"{way}: {count} stories in {took[way]:.1f} s, ideal {ideal:.1f} s, "
            f"longest pause {longest:.1f} s, {1000 * cost:.0f} ms of processor time per story\n"
        )
    record.compare(
        "cluster", f"{count} stories on {WORKERS} workers / ideal", [took["cluster"] / ideal], GATE
    )
    record.compare(
        "cluster", f"{count} stories in {WORKERS * SLOTS} slots here / ideal", [took["local"] / ideal]
    )
    return took["cluster"] / ideal <= GATE


def _processor_seconds() -> float:
    """Return the processor time of all children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seen(folder: Path) -> bool:
    """Measure how long a line takes from a session on a worker to the log here."""
    repo = folder / "repo"
    begin_repository(repo)
    write_story(
        repo, "talks", command=f"for i in $(seq {LINES}); do date +at=%s.%N; sleep 0.1; done; echo > x"
    )
    commit_stories(repo)
    delays: dict[str, float] = {}
    env = {"XDG_DATA_HOME": str(folder / "share")}
    with started(repo, "--cluster", "local:1", env=env) as running:
        while len(delays) < LINES and "error:" not in running.err:
            for log in (repo / ".git/autopilot/runs").glob("*/*/*.log"):
                now = time.time()
                for line in log.read_text().split("\n")[:-1]:
                    if line.startswith("at="):
                        delays.setdefault(line, now - float(line[3:]))
            time.sleep(0.02)  # nobody can announce a line
        running.finish()
    worst = max(delays.values())
    middle = sorted(delays.values())[len(delays) // 2]
    sys.stdout.write(
        f"a line is seen after {middle:.2f} s (median), {worst:.2f} s (worst of {len(delays)})\n"
    )
    record.compare("cluster", "a line of a session is seen here / 1 s", [worst / SEEN_GATE], 1.0)
    return worst <= SEEN_GATE


def _memory(folder: Path) -> bool:
    """Measure a coordinator whose 32 workers each have a story that sleeps."""
    repo = folder / "repo"
    begin_repository(repo)
    for number in range(MANY):
        write_story(repo, f"s{number:02}", command=f"until test -f {folder}/go; do sleep 1; done; echo > x")
    commit_stories(repo)
    with machines(folder / "cluster") as cluster:
        crowd = [_crowd(cluster, folder, number) for number in range(4)]
        try:
            with started(repo, "--cluster", str(cluster.file), "--max-stories=1", real_start=True) as running:
                wait_until(lambda: _sessions(repo) == MANY, what="all sessions run", limit=600)
                status = Path(f"/proc/{running.pid}/status").read_text()
                most = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
                (folder / "go").touch()
                running.finish()
        finally:
            for process in crowd:
                process.kill()
                process.wait()
    used = most / 1024
    sys.stdout.write(
        f"{MANY} workers with a sleeping story each: the coordinator had {used:.0f} MiB at most\n"
    )
    record.compare(
        "cluster", f"memory with {MANY} workers / {MEMORY_GATE:.0f} MiB", [used / MEMORY_GATE], 1.0
    )
    return used <= MEMORY_GATE


def _crowd(cluster: Machines, folder: Path, number: int) -> "subprocess.Popen[bytes]":
    names = [f"w{number}-{each}" for each in range(MANY // 4)]
    process = subprocess.Popen(
        [sys.executable, "-c", _MANY_WORKERS, cluster.address, *names],
        stdout=subprocess.PIPE,
        stderr=(folder / f"crowd-{number}").open("wb"),
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XDG_DATA_HOME": str(folder / "share")},
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _sessions(repo: Path) -> int:
    journal = repo / ".git/autopilot/journal.db"
    return sum(each["kind"] == "SessionStarted" for each in events(repo)) if journal.exists() else 0


if __name__ == "__main__":
    sys.exit(not main())

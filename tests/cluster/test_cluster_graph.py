"""A whole backlog on four workers, undisturbed and under kills."""

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, processes_with, run, started, wait_until, write_story
from tests.cluster.machines import Machines, events, machines, trees
from tests.conftest import git

WORKERS = ("one", "two", "three", "four")
STORIES = int(os.environ.get("CHAOS_CLUSTER_STORIES", "40"))
KILL_SECONDS = 4.0


def _graph(repo: Path, count: int, ledger: Path, seconds: float = 0.0) -> None:
    """Write stories of which every third builds on the two before it; each session leaves a line."""
    for number in range(count):
        name = f"s{number:03}"
        needs = [f"s{number - 2:03}", f"s{number - 1:03}"] if number % 3 == 2 else []
        reads = "".join(f"cat {other}.txt && " for other in needs)
        write_story(
            repo,
            name,
            command=f"echo {name} >> {ledger}; {reads}sleep {seconds}; echo {number} > {name}.txt",
            verify=f"test -f {name}.txt",
            depends_on=needs,
        )
    commit_stories(repo)


@pytest.mark.slow
def test_forty_stories_on_four_workers_make_the_trees_of_a_local_run(repo: Path, tmp_path: Path) -> None:
    """40 stories with dependencies, on four processes with their own clones and homes: the same tree ids."""
    _graph(repo, 40, tmp_path / "ledger")
    shutil.copytree(repo, tmp_path / "local", symlinks=True)
    assert run(tmp_path / "local", limit=300).code == 0
    with machines(tmp_path / "cluster", *WORKERS, options=("--slots=2",)) as cluster:
        with started(repo, "--cluster", str(cluster.file)) as running:
            wait_until(lambda: "ended" in running.err.rpartition("run ")[2], what="the run ends", limit=300)
            assert running.finish().code == 0
        places = Counter(each["data"]["worker"] for each in events(repo) if each["kind"] == "StoryPlaced")
    assert set(places) == set(WORKERS)
    assert len(trees(repo)) == 40
    assert trees(repo) == trees(tmp_path / "local")


@pytest.mark.chaos
def test_kills_of_workers_lose_nothing_and_count_nothing_twice(repo: Path, tmp_path: Path) -> None:
    """One worker after another is killed and started again: 0 lost, 0 counted twice, nothing left running."""
    ledger = tmp_path / "ledger"
    _graph(repo, STORIES, ledger, seconds=0.5)
    rng = random.Random(7)  # noqa: S311  decides who is struck
    kills = 0
    with machines(tmp_path / "cluster", *WORKERS, options=("--slots=2",)) as cluster:
        with started(repo, "--cluster", str(cluster.file)) as running:
            wait_until(ledger.exists, what="a session runs", limit=120)
            over = threading.Event()
            deadline = time.monotonic() + 900
            while not over.wait(KILL_SECONDS) and time.monotonic() < deadline:
                if _has_ended(repo):
                    over.set()
                    continue
                kills += _strike(cluster, rng)
            ended = running.finish()
        assert ended.code == 0, ended.err[-4000:]
    finished = Counter(each["data"]["story_id"] for each in events(repo) if each["kind"] == "StoryFinished")
    assert len(finished) == STORIES, "no story is lost"
    assert set(finished.values()) == {1}, "no story is counted twice"
    sessions = Counter(ledger.read_text().split())
    lost = sum(sessions.values()) - STORIES
    placings = Counter(each["data"]["story_id"] for each in events(repo) if each["kind"] == "StoryPlaced")
    assert lost <= sum(placings.values()) - STORIES, "a session is repeated only if its worker was lost"
    for number in range(STORIES):
        assert git(repo, "show", f"autopilot/s{number:03}:s{number:03}.txt") == f"{number}\n"
    assert not processes_with(str(tmp_path)), "nothing is left running"
    print(f"{STORIES} stories, {kills} kills, {lost} sessions repeated, 0 lost, 0 counted twice")  # noqa: T201  `make chaos` shows it


def _strike(cluster: Machines, rng: random.Random) -> int:
    name = rng.choice(WORKERS)
    cluster.signal(name, signal.SIGKILL)
    cluster.start(name, "--slots=2")
    return 1


def _has_ended(repo: Path) -> bool:
    return any(each["kind"] == "RunEnded" for each in events(repo))

"""A backlog on workers that are killed and cut off at random: nothing is lost or counted twice."""

import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.program import started, wait_until
from tests.cluster.campaign import TIMEOUT, Wired, await_nothing_running, has_ended, judge, write_graph
from tests.cluster.machines import events, machines
from tests.cluster.proxy import Network

Make = Callable[..., Path]

STORIES = int(os.environ.get("CHAOS_CLUSTER_STORIES", "200"))
SEED = int(os.environ.get("CHAOS_CLUSTER_SEED", "7"))
COORDINATED = int(os.environ.get("CHAOS_COORDINATOR_STORIES", "120"))
KILLS = int(os.environ.get("CHAOS_COORDINATOR_KILLS", "50"))
STRIKE_SECONDS = 3.0
LIMIT = 1800.0
ENV = {"AUTOPILOT_MULTI_CLUSTER_TIMEOUT": str(TIMEOUT)}


@contextmanager
def wired(tmp_path: Path, *names: str) -> Iterator[Wired]:
    """Run a cluster whose connections go through wires of the test."""
    network = Network()
    try:
        with machines(tmp_path / "cluster") as cluster:
            found = Wired(cluster=cluster, network=network, names=names)
            found.begin()
            yield found
    finally:
        network.close()


def test_a_cut_costs_no_session(repo: Path, make_repository: Make, tmp_path: Path) -> None:
    """A sample of the campaign below: a session outlives broken connections of its worker and of the run.

    The last of its stories works in another repository, and waits for the others.
    """
    ledger, gate, others = tmp_path / "ledger", tmp_path / "gate", [make_repository("other")]
    waits = f"until test -f {gate}; do sleep 0.05; done"
    names = write_graph(repo, 3, ledger, 0.0, also=waits, others=others)
    with wired(tmp_path, "one") as cluster:
        with started(repo, "--cluster", cluster.entrance, env=ENV) as running:
            wait_until(ledger.exists, what="a session runs", limit=60)
            cluster.cut("one")
            wait_until(lambda: "one is back" in cluster.cluster.log("one"), what="it is back", limit=60)
            cluster.cut("coordinator")
            gate.touch()
            ended = running.finish()
        assert ended.code == 0, ended.err[-4000:]
    findings, figures = judge(repo, ledger, names, cluster.strikes)
    assert not findings, findings
    assert "0 losses, 0 sessions repeated" in figures


@pytest.mark.chaos
@pytest.mark.parametrize("repositories", [1, 3])
def test_kills_and_cuts_lose_nothing_and_count_nothing_twice(
    repo: Path, make_repository: Make, tmp_path: Path, repositories: int
) -> None:
    """Eight workers, one struck every few seconds: 0 lost, 0 counted twice, one session per kill at most."""
    ledger, rng = tmp_path / "ledger", random.Random(SEED)  # noqa: S311  decides who is struck
    others = [make_repository(f"other-{number}") for number in range(1, repositories)]
    names = write_graph(repo, STORIES, ledger, 1.0, others=others)
    with wired(tmp_path, *(f"worker-{number}" for number in range(8))) as cluster:
        with started(repo, "--cluster", cluster.entrance, env=ENV) as running:
            wait_until(ledger.exists, what="a session runs", limit=120)
            over, deadline = threading.Event(), time.monotonic() + LIMIT
            while not over.wait(STRIKE_SECONDS) and not has_ended(repo) and time.monotonic() < deadline:
                assert "error:" not in running.err, running.err[-6000:]
                cluster.strike(rng)
            ended = running.finish()
        assert ended.code == 0, ended.err[-6000:]
    findings, figures = judge(repo, ledger, names, cluster.strikes)
    assert not findings, findings
    await_nothing_running(tmp_path)
    print(f"seed {SEED}, repositories {repositories}: {figures}, 0 lost, 0 counted twice")  # noqa: T201  `make chaos` shows it


@pytest.mark.chaos
@pytest.mark.parametrize("repositories", [1, 2])
def test_a_coordinator_that_is_killed_again_and_again_repeats_no_session(
    repo: Path, make_repository: Make, tmp_path: Path, repositories: int
) -> None:
    """Killed 50 times at any moment and resumed: what runs on workers is adopted, not repeated."""
    ledger, rng = tmp_path / "ledger", random.Random(SEED)  # noqa: S311  decides when it is struck
    others = [make_repository(f"other-{number}") for number in range(1, repositories)]
    names = write_graph(repo, COORDINATED, ledger, 6.0, others=others)
    kills = 0
    with machines(tmp_path / "cluster", "one", "two", "three", "four", options=("--slots=2",)) as cluster:
        command: tuple[str, ...] = ("--cluster", str(cluster.file))
        while kills < KILLS:
            assert not has_ended(repo), f"the run ended after {kills} kills; it needs more stories"
            with started(repo, *command, env=ENV) as running:
                has_begun = partial(_has_begun, repo, kills + 1)
                wait_until(has_begun, what="the run begins", limit=60)
                threading.Event().wait(rng.uniform(0.0, 3.0))
                running.send(signal.SIGKILL)
                kills += 1
            command = ("resume",)
        with started(repo, "resume", env=ENV) as running:
            wait_until(lambda: has_ended(repo), what="the run ends", limit=LIMIT)
            ended = running.finish()
        assert ended.code == 0, ended.err[-6000:]
    findings, figures = judge(repo, ledger, names, Counter())
    assert not findings, findings
    assert "0 losses, 0 sessions repeated" in figures
    await_nothing_running(tmp_path)
    print(f"seed {SEED}, repositories {repositories}: {kills} kills of the coordinator, {figures}")  # noqa: T201  `make chaos` shows it


def _has_begun(repo: Path, times: int) -> bool:
    """Whether the run was begun or resumed so often."""
    if not (repo / ".git/autopilot/journal.db").exists():
        return False
    with suppress(sqlite3.OperationalError):  # its tables are made just now
        return sum(each["kind"] in {"RunStarted", "RunResumed"} for each in events(repo)) >= times
    return False

"""Workers and coordinators that die, hang and come back: nothing is lost, and nothing is counted twice."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story, writes
from tests.cluster.machines import Machines, events, machines
from tests.conftest import git


def _waiting(repo: Path, tmp_path: Path, name: str = "slow") -> Path:
    """Write a story that counts its sessions and waits for a file; return that file."""
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    waits = f"until test -e {gate}; do sleep 0.05; done"
    commits = "echo half > half; git add half; git commit -qm half"
    write_story(
        repo,
        name,
        command=f"{commits}; echo session >> {ledger}; {waits}; {writes(name)}",
        verify=f"test -f {name}",
    )
    commit_stories(repo)
    return gate


def _sessions(tmp_path: Path) -> int:
    ledger = tmp_path / "ledger"
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


def _finished(repo: Path) -> Counter[str]:
    return Counter(each["data"]["story_id"] for each in events(repo) if each["kind"] == "StoryFinished")


def _placings(repo: Path) -> list[tuple[str, int]]:
    return [
        (each["data"]["worker"], each["data"]["fence"])
        for each in events(repo)
        if each["kind"] == "StoryPlaced"
    ]


def _holder(cluster: Machines, repo: Path) -> str:
    """Return the worker that has the story now."""
    wait_until(lambda: _placings(repo), what="the story is placed")
    name = _placings(repo)[-1][0]
    assert name in cluster.workers
    return name


@pytest.mark.slow
def test_a_killed_workers_story_starts_again_elsewhere(repo: Path, tmp_path: Path) -> None:
    """SIGKILL on a worker costs one session; the story is done on another worker, and counted once."""
    gate = _waiting(repo, tmp_path)
    with (
        machines(tmp_path / "cluster", "one", "two") as cluster,
        started(repo, "--cluster", str(cluster.file)) as running,
    ):
        wait_until(lambda: _sessions(tmp_path) == 1, what="a session runs")
        cluster.signal(_holder(cluster, repo), signal.SIGKILL)
        wait_until(lambda: _sessions(tmp_path) == 2, what="it runs again")
        gate.touch()
        ended = running.finish()
    assert ended.code == 0, ended.err
    (first, one), (second, two) = _placings(repo)
    assert f"what it did there since its last checkpoint is on worker {first}, at /" in ended.err
    assert (one, two) == (1, 2)
    assert first != second
    assert _sessions(tmp_path) == 2
    assert _finished(repo) == {"slow": 1}
    assert git(repo, "show", "autopilot/slow:slow") == "made\n"


@pytest.mark.slow
def test_a_worker_that_dies_with_a_finished_story_loses_nothing(repo: Path, tmp_path: Path) -> None:
    """Only the removal of its worktree was still to come: it does not start again, and nobody says so."""
    removing = tmp_path / "removing"
    (repo / "autopilot-multi.toml").write_text(f"[hooks]\nbefore_remove = 'touch {removing}; sleep 1000'\n")
    write_story(repo, "a", command=writes("a"))
    commit_stories(repo)
    with (
        machines(tmp_path / "cluster", "one") as cluster,
        started(repo, "--cluster", str(cluster.file)) as running,
    ):
        wait_until(removing.exists, what="the worktree is to be removed", limit=60)
        wait_until(lambda: _finished(repo) == {"a": 1}, what="the journal has its result")
        cluster.signal("one", signal.SIGKILL)
        ended = running.finish()
    assert ended.code == 0, ended.err
    assert "; its worktree is on worker one, at /" in ended.err
    assert "starts again" not in ended.err
    assert "StoryLost" not in _kinds(repo)
    assert _finished(repo) == {"a": 1}
    assert git(repo, "show", "autopilot/a:a") == "made\n"


@pytest.mark.slow
def test_work_that_was_not_committed_yet_is_done_again(repo: Path, tmp_path: Path) -> None:
    """A worker that dies between the end of a session and its commit costs that session, not its work."""
    gate, reached = tmp_path / "gate", tmp_path / "reached"
    write_story(repo, "a", command=f"echo session >> {tmp_path / 'ledger'}; {writes('a')}")
    hook = f"touch {reached}; until test -e {gate}; do sleep 0.05; done"
    (repo / "autopilot-multi.toml").write_text(f'[hooks]\nafter_run = "{hook}"\n')
    commit_stories(repo)
    with (
        machines(tmp_path / "cluster", "one", "two") as cluster,
        started(repo, "--cluster", str(cluster.file)) as running,
    ):
        wait_until(reached.exists, what="the session has ended")
        wait_until(lambda: "CheckpointPlanned" in _kinds(repo), what="the journal has its end")
        cluster.signal(_holder(cluster, repo), signal.SIGKILL)
        gate.touch()
        ended = running.finish()
    assert ended.code == 0, ended.err
    assert _sessions(tmp_path) == 2
    verdicts = [each["data"]["verdict"] for each in events(repo) if each["kind"] == "StoryFinished"]
    assert verdicts == ["done"]
    assert git(repo, "show", "autopilot/a:a") == "made\n"


def test_a_worker_that_hangs_is_fenced_when_it_comes_back(repo: Path, tmp_path: Path) -> None:
    """What a worker commits after its story was placed elsewhere is kept aside, and never counted."""
    gate = _waiting(repo, tmp_path)
    with (
        machines(tmp_path / "cluster", "one", "two") as cluster,
        started(repo, "--cluster", str(cluster.file), env=_brief()) as running,
    ):
        wait_until(lambda: _sessions(tmp_path) == 1, what="a session runs")
        hung = _holder(cluster, repo)
        cluster.signal(hung, signal.SIGSTOP)
        wait_until(lambda: _sessions(tmp_path) == 2, what="it runs elsewhere", limit=60)
        cluster.signal(hung, signal.SIGCONT)
        wait_until(lambda: "not counted" in running.err or _left(cluster, hung), what="it is fenced")
        gate.touch()
        ended = running.finish()
    assert ended.code == 0, ended.err
    kept = git(cluster.clone(hung), "for-each-ref", "--format=%(refname)", "refs/autopilot/fenced")
    assert kept.strip().endswith("/slow/1"), "what it had committed is kept aside, in its own clone"
    assert [fence for _, fence in _placings(repo)] == [1, 2]
    assert _finished(repo) == {"slow": 1}
    assert git(repo, "show", "autopilot/slow:slow") == "made\n"


def _left(cluster: Machines, name: str) -> bool:
    """Whether no session of a worker runs any more."""
    marker = str(cluster.clone(name).parent)
    return not any(marker in _cwd(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _cwd(process: Path) -> str:
    try:
        return str((process / "cwd").readlink())
    except OSError:
        return ""


def _brief() -> dict[str, str]:
    return {"AUTOPILOT_MULTI_CLUSTER_TIMEOUT": "4"}


@pytest.mark.slow
def test_a_resumed_coordinator_adopts_what_still_runs(repo: Path, tmp_path: Path) -> None:
    """SIGKILL on the coordinator ends no session on a worker; `resume` takes it over and repeats nothing."""
    gate = _waiting(repo, tmp_path)
    with machines(tmp_path / "cluster", "one") as cluster:
        with started(repo, "--cluster", str(cluster.file)) as running:
            wait_until(lambda: _sessions(tmp_path) == 1, what="a session runs")
            wait_until(lambda: "SessionStarted" in _kinds(repo), what="the journal has it")
            running.send(signal.SIGKILL)
        with started(repo, "resume") as resumed:
            wait_until(lambda: "RunResumed" in _kinds(repo), what="the run is resumed")
            gate.touch()
            ended = resumed.finish()
        assert ended.code == 0, ended.err
    assert _sessions(tmp_path) == 1, "the session was adopted, not repeated"
    assert [fence for _, fence in _placings(repo)] == [1]
    assert _finished(repo) == {"slow": 1}


@pytest.mark.slow
def test_a_scheduler_that_is_started_again_costs_no_session(repo: Path, tmp_path: Path) -> None:
    """Without a scheduler nobody hears of anybody; once it is back, all continue where they were."""
    gate = _waiting(repo, tmp_path)
    with machines(tmp_path / "cluster", "one") as cluster:
        address, port = cluster.address, cluster.port
        with started(repo, "--cluster", address, env=_brief()) as running:
            wait_until(lambda: _sessions(tmp_path) == 1, what="a session runs")
            cluster.scheduler.kill()
            cluster.scheduler.wait(60)
            wait_until(lambda: "joins again" in cluster.log("one"), what="the worker knows", limit=60)
            cluster.start_scheduler(port)
            wait_until(lambda: "one is back" in cluster.log("one"), what="the worker is back", limit=60)
            gate.touch()
            ended = running.finish()
        assert ended.code == 0, ended.err
    assert _sessions(tmp_path) == 1
    assert [fence for _, fence in _placings(repo)] == [1]


def _kinds(repo: Path) -> set[str]:
    return {each["kind"] for each in events(repo)}


@pytest.mark.slow
def test_work_that_came_while_the_coordinator_was_dead_is_counted_once(repo: Path, tmp_path: Path) -> None:
    """A session that ends without a coordinator waits with its result until one is back."""
    gate = _waiting(repo, tmp_path)
    with machines(tmp_path / "cluster", "one") as cluster:
        with started(repo, "--cluster", str(cluster.file)) as running:
            wait_until(lambda: _sessions(tmp_path) == 1, what="a session runs")
            wait_until(lambda: "SessionStarted" in _kinds(repo), what="the journal has it")
            running.send(signal.SIGKILL)
        gate.touch()
        clone = cluster.clone("one")
        wait_until(lambda: _left(cluster, "one") and clone, what="the session has ended")
        ended = run(repo, "resume")
        assert ended.code == 0, ended.err
    assert _sessions(tmp_path) == 1
    assert _finished(repo) == {"slow": 1}


@pytest.mark.slow
@pytest.mark.parametrize("asked", [["stop"], ["stop", "--now"]])
def test_a_stop_reaches_the_workers(repo: Path, tmp_path: Path, asked: list[str]) -> None:
    """`stop` lets the session on a worker end, `stop --now` ends it; the run ends in either case."""
    gate = _waiting(repo, tmp_path)
    write_story(repo, "later", command=writes("later"), depends_on=["slow"])
    with (
        machines(tmp_path / "cluster", "one") as cluster,
        started(repo, "--cluster", str(cluster.file)) as running,
    ):
        wait_until(lambda: _sessions(tmp_path) == 1, what="a session runs")
        assert run(repo, *asked).code == 0
        if asked == ["stop"]:
            gate.touch()
        ended = running.finish()
    assert "stopped" in ended.err
    assert "later" not in git(repo, "branch", "--list", "autopilot/*")

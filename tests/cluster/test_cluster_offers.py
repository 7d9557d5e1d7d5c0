"""What workers offer and get: resources and labels, named variables, their doctor's findings, a way out."""

import os
import signal
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story, writes
from tests.cluster.machines import events, machines
from tests.conftest import git

pytestmark = pytest.mark.slow


def _placed(repo: Path) -> list[tuple[str, str]]:
    placed = (each["data"] for each in events(repo) if each["kind"] == "StoryPlaced")
    return [(each["story_id"], each["worker"]) for each in placed]


def test_a_story_goes_to_a_worker_that_has_what_it_needs(repo: Path, tmp_path: Path) -> None:
    """Of two workers, one has a GPU and a label; the others leave it to those that need it."""
    needs = {"gpu": 1, "label": "big"}
    for name in ("a", "b"):
        write_story(repo, f"special-{name}", command=writes(name), needs=needs)
    write_story(repo, "plain", command=writes("plain"))
    commit_stories(repo)
    with machines(tmp_path / "cluster", "one") as cluster:
        cluster.start("two", "--offer", "gpu=1", "--label", "big")
        ran = run(repo, "--cluster", str(cluster.file))
        assert ran.code == 0, ran.err
    placed = dict(_placed(repo))
    assert (placed["special-a"], placed["special-b"], placed["plain"]) == ("two", "two", "one")


def test_what_stories_wait_for_in_vain_is_said(repo: Path, tmp_path: Path) -> None:
    """That there is no worker, and that none has what a story needs, are notes; the run waits for one."""
    write_story(repo, "plain", command=writes("plain"))
    write_story(repo, "special", command=writes("special"), needs={"gpu": 2, "label": "big"})
    commit_stories(repo)
    with (
        machines(tmp_path / "cluster") as cluster,
        started(repo, "--cluster", cluster.address) as running,
    ):
        nobody = f"no worker serves this run now, so its stories wait; the cluster is at {cluster.address}"
        wait_until(lambda: nobody in running.err, what="it says that there is no worker")
        cluster.start("one")
        needs = "story special waits for a worker with gpu 2, label big, and none that is here offers that"
        wait_until(lambda: needs in running.err, what="it says what is missing")
        wait_until(lambda: "plain    done" in running.err, what="the other story is done")
        cluster.signal("one", signal.SIGTERM)
        assert cluster.workers["one"].wait(60) == 0
        assert "Traceback" not in cluster.log("one"), "although it was just asked for news"
        cluster.start("two", "--offer", "gpu=2", "--label", "big")
        ended = running.finish()
    assert ended.code == 0, ended.err
    assert _placed(repo) == [("plain", "one"), ("special", "two")]


def test_a_worker_without_the_agent_gets_no_story(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused with the name of the program, instead of failing every attempt at once."""
    program = tmp_path / "programs/own-agent"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho made > a\n")
    program.chmod(0o755)
    (repo / "autopilot-multi.toml").write_text('[agents.own]\nargv = ["own-agent"]\n')
    write_story(repo, "a", agent="own")
    commit_stories(repo)
    with machines(tmp_path / "cluster", "without") as cluster:
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        with started(repo, "--cluster", str(cluster.file)) as running:
            said = "worker without is not used: story a: agent 'own' cannot start: no program 'own-agent'"
            wait_until(lambda: said in running.err, what="it is refused")
            cluster.start("with")
            ended = running.finish()
    assert ended.code == 0, ended.err
    assert _placed(repo) == [("a", "with")]
    assert git(repo, "show", "autopilot/a:a") == "made\n"


def test_only_named_variables_travel(repo: Path, tmp_path: Path) -> None:
    """A session on a worker has what `cluster-env` names of the coordinator's environment, and no more."""
    write_story(repo, "a", command="echo ${FIRST_VALUE-none} ${SECOND_VALUE-none} > a")
    commit_stories(repo)
    env = {"FIRST_VALUE": "one", "SECOND_VALUE": "two", "AUTOPILOT_MULTI_CLUSTER_ENV": "FIRST_VALUE"}
    with machines(tmp_path / "cluster", "one") as cluster:
        ran = run(repo, "--cluster", str(cluster.file), env=env)
        assert ran.code == 0, ran.err
    assert git(repo, "show", "autopilot/a:a") == "one none\n"


def test_findings_of_a_workers_doctor_are_shown(repo: Path, tmp_path: Path) -> None:
    """What is wrong on a worker's machine is a note of the run, with the worker's name."""
    gate = tmp_path / "gate"
    write_story(repo, "a", command=f"until test -e {gate}; do sleep 0.05; done; {writes('a')}")
    commit_stories(repo)
    with machines(tmp_path / "cluster") as cluster:
        settings = tmp_path / "cluster/home-one/.config/autopilot-multi/config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("no-such-setting = 1\n")
        cluster.start("one")
        with started(repo, "--cluster", str(cluster.file)) as running:
            wait_until(lambda: "worker one: settings:" in running.err, what="the finding is shown")
            gate.touch()
            ended = running.finish()
    assert ended.code == 0, ended.err
    assert "no-such-setting" in ended.err


def test_a_worker_that_is_drained_ends_and_its_story_moves(repo: Path, tmp_path: Path) -> None:
    """SIGTERM ends the sessions of a worker, then the worker; the story starts again elsewhere."""
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    waits = f"until test -e {gate}; do sleep 0.05; done"
    write_story(repo, "a", command=f"echo session >> {ledger}; {waits}; {writes('a')}")
    commit_stories(repo)
    with (
        machines(tmp_path / "cluster", "one", "two") as cluster,
        started(repo, "--cluster", str(cluster.file)) as running,
    ):
        wait_until(ledger.exists, what="a session runs")
        (_, first), *_ = _placed(repo)
        cluster.signal(first, signal.SIGTERM)
        assert cluster.workers[first].wait(60) == 0
        wait_until(lambda: len(ledger.read_text().splitlines()) == 2, what="it runs elsewhere", limit=60)
        gate.touch()
        ended = running.finish()
    assert ended.code == 0, ended.err
    assert f"worker {first} cannot work on it: it is ending" in ended.err
    assert [name for name, _ in _placed(repo)] == ["a", "a"], "it did not get the story once more"
    assert len({worker for _, worker in _placed(repo)}) == 2

"""One run with stories in several repositories, carried by the workers of a cluster."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.program import run, started, wait_until, write_story, writes
from tests.cluster.machines import Machines, events, machines, trees
from tests.conftest import git

Make = Callable[..., Path]


@pytest.fixture
def app(make_repository: Make, tmp_path: Path) -> Path:
    """Return the repository of the run; one called web is beside it, with a check of its own."""
    (tmp_path / "both").mkdir()
    make_repository("both/web", {"autopilot-multi.toml": "verify = ['test ! -e red.txt']\n"})
    return make_repository("both/app")


@pytest.fixture
def web(app: Path) -> Path:
    """Return the other repository."""
    return app.parent / "web"


def _backlog(app: Path) -> None:
    """Write stories that depend on each other in both directions across the repositories."""
    write_story(app, "a", command=f"echo working on a; {writes('a.txt')}", verify="test -f a.txt")
    large = "seq 300000 > numbers"  # more than goes along with an event
    write_story(app, "w1", command=f"{large}; {writes('w1.txt')}", repo="../web")
    write_story(
        app, "w2", command=f"test -f w1.txt && {writes('w2.txt')}", repo="../web", depends_on=["w1", "a"]
    )
    write_story(app, "b", command=f"test -f a.txt && {writes('b.txt')}", depends_on=["a", "w2"])


def test_two_repositories_get_the_commits_of_a_local_run(app: Path, web: Path, tmp_path: Path) -> None:
    """Each gets its own branches, with the trees that this machine makes, and lands by itself."""
    _backlog(app)
    shutil.copytree(app.parent, tmp_path / "local", symlinks=True)
    assert run(tmp_path / "local" / "app").code == 0
    ran = run(app, "--cluster", "local:2", "--max-stories=1", "--json")
    assert ran.code == 0, ran.err
    assert list(trees(app)) == ["autopilot/a", "autopilot/b"]
    assert list(trees(web)) == ["autopilot/w1", "autopilot/w2"]
    assert trees(app) == trees(tmp_path / "local" / "app")
    assert trees(web) == trees(tmp_path / "local" / "web")
    placed = {each["data"]["story_id"] for each in events(app) if each["kind"] == "StoryPlaced"}
    assert placed == {"a", "b", "w1", "w2"}
    assert "working on a" in run(app, "logs", "a").out
    for repo in (app, web):
        assert not git(repo, "for-each-ref", "refs/autopilot/travel"), "what was only for the way is gone"
    shown = run(app, "status", "--json")
    assert {each["id"]: (each["repo"], each["status"]) for each in shown.data["stories"]} == {
        "a": ("app", "done"),
        "b": ("app", "done"),
        "w1": ("web", "done"),
        "w2": ("web", "done"),
    }
    landed = run(app, "land", "--json")
    assert {part["repo"]: part["landed"] for part in landed.data["repos"]} == {
        "app": ["a", "b"],
        "web": ["w1", "w2"],
    }


def _waiting(app: Path, tmp_path: Path, **needs: str) -> Path:
    """Write a story in each repository that counts its sessions and waits for a file; return that file.

    `needs` are those of the stories in the other repository.
    """
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    for name, repo in (("a", "."), ("w", "../web")):
        half = f"echo half > half-{name}; git add .; git commit -qm half"
        waits = f"until test -e {gate}; do sleep 0.05; done"
        script = f"{half}; echo {name} >> {ledger}; {waits}; {writes(f'{name}.txt')}"
        write_story(app, name, command=script, repo=repo, needs=needs if name == "w" else {})
    write_story(app, "after", command=writes("after.txt"), repo="../web", depends_on=["a", "w"], needs=needs)
    return gate


def _sessions(tmp_path: Path) -> list[str]:
    ledger = tmp_path / "ledger"
    return sorted(ledger.read_text().split()) if ledger.exists() else []


def _wait_for_both(tmp_path: Path) -> None:
    wait_until(lambda: _sessions(tmp_path) == ["a", "w"], what="both repositories are at work", limit=60)


def _holder(repo: Path, story_id: str) -> str:
    """Return the worker that has a story now."""
    placed = [each["data"] for each in events(repo) if each["kind"] == "StoryPlaced"]
    return [str(each["worker"]) for each in placed if each["story_id"] == story_id][-1]


def _clones(cluster: Machines, name: str) -> list[Path]:
    """Return the clones of a worker to which commits came."""
    found = [path.parent for path in cluster.folder.glob(f"home-{name}/**/repo/.git")]
    return [path for path in found if git(path, "for-each-ref", "refs/autopilot/travel")]


def _finished(repo: Path) -> list[str]:
    return sorted(each["data"]["story_id"] for each in events(repo) if each["kind"] == "StoryFinished")


def _kinds(repo: Path) -> list[str]:
    return [each["kind"] for each in events(repo)]


@pytest.mark.slow
def test_a_killed_workers_stories_start_again_elsewhere(app: Path, web: Path, tmp_path: Path) -> None:
    """SIGKILL on the worker that has the story of the other repository costs that one session."""
    gate = _waiting(app, tmp_path, label="web")
    with machines(tmp_path / "cluster", "plain") as cluster:
        cluster.start("one", "--label=web")
        with started(app, "--cluster", str(cluster.file)) as running:
            _wait_for_both(tmp_path)
            assert _holder(app, "w") == "one"
            assert len(_clones(cluster, "plain")) == 1, "it has no story of the other repository"
            assert len(_clones(cluster, "one")) == 2
            cluster.start("two", "--label=web")
            cluster.signal("one", signal.SIGKILL)
            again = ["a", "w", "w"]
            wait_until(lambda: _sessions(tmp_path) == again, what="it runs again", limit=60)
            assert _holder(app, "w") == "two"
            gate.touch()
            ended = running.finish()
    assert ended.code == 0, ended.err
    assert _finished(app) == ["a", "after", "w"]
    assert _sessions(tmp_path) == ["a", "w", "w"]
    assert git(web, "show", "autopilot/after:w.txt") == "made\n"
    assert git(app, "show", "autopilot/a:a.txt") == "made\n"


@pytest.mark.slow
def test_a_worker_that_hangs_is_fenced_in_the_right_repository(app: Path, web: Path, tmp_path: Path) -> None:
    """What it commits too late is kept aside in its clone of the other repository, and never counted."""
    gate = _waiting(app, tmp_path)
    with (
        machines(tmp_path / "cluster", "one", "two", options=("--slots=2",)) as cluster,
        started(app, "--cluster", str(cluster.file), env={"AUTOPILOT_MULTI_CLUSTER_TIMEOUT": "4"}) as running,
    ):
        _wait_for_both(tmp_path)
        hung = _holder(app, "w")
        cluster.signal(hung, signal.SIGSTOP)
        wait_until(lambda: _sessions(tmp_path).count("w") == 2, what="it runs elsewhere", limit=60)
        cluster.signal(hung, signal.SIGCONT)
        kept = "refs/autopilot/fenced"
        wait_until(
            lambda: any(git(each, "for-each-ref", kept) for each in [web, *_clones(cluster, hung)]),
            what="it is fenced",
            limit=60,
        )
        gate.touch()
        ended = running.finish()
    assert ended.code == 0, ended.err
    assert not git(app, "for-each-ref", kept)
    assert _finished(app) == ["a", "after", "w"]
    assert git(web, "show", "autopilot/after:w.txt") == "made\n"


@pytest.mark.slow
def test_a_resumed_coordinator_adopts_what_runs_in_both(app: Path, web: Path, tmp_path: Path) -> None:
    """SIGKILL on the coordinator ends no session; its leases are taken over, and nothing is repeated."""
    gate = _waiting(app, tmp_path)
    write_story(web, "own", command="true")
    with machines(tmp_path / "cluster", "one", options=("--slots=2",)) as cluster:
        with started(app, "--cluster", str(cluster.file)) as running:
            _wait_for_both(tmp_path)
            wait_until(lambda: _kinds(app).count("SessionStarted") == 2, what="the journal has them")
            taken = run(web, "run", "--json")
            assert taken.document["error"]["code"] == "lease-held"
            os.kill(running.pid, signal.SIGKILL)
        with started(app, "resume") as resumed:
            wait_until(lambda: "RunResumed" in _kinds(app), what="the run is resumed")
            gate.touch()
            ended = resumed.finish()
        assert ended.code == 0, ended.err
    assert _sessions(tmp_path) == ["a", "w"], "the sessions were adopted, not repeated"
    assert _finished(app) == ["a", "after", "w"]
    assert git(web, "show", "autopilot/after:w.txt") == "made\n"
    assert git(app, "branch", "--list", "autopilot/*").split() == ["autopilot/a"]


@pytest.mark.slow
def test_a_stop_reaches_stories_in_both(app: Path, web: Path, tmp_path: Path) -> None:
    """`stop --now` ends the sessions of all repositories, and nothing starts after it."""
    _waiting(app, tmp_path)
    with (
        machines(tmp_path / "cluster", "one", options=("--slots=2",)) as cluster,
        started(app, "--cluster", str(cluster.file)) as running,
    ):
        _wait_for_both(tmp_path)
        assert run(app, "stop", "--now").code == 0
        ended = running.finish()
    assert "stopped" in ended.err
    shown = run(app, "status", "--json").data["stories"]
    assert [each["status"] for each in shown] == ["stopped"] * 3
    assert not git(web, "branch", "--list", "autopilot/after")


@pytest.mark.slow
def test_sessions_on_a_worker_stay_in_their_clone(app: Path, web: Path, tmp_path: Path) -> None:
    """A session cannot write into another clone of its worker, as on one machine."""
    with machines(tmp_path / "cluster", "one") as cluster:
        clones = f"{cluster.folder}/home-one/share/autopilot-multi-workers/one/*/repo"
        tries = f"for each in {clones}; do echo x > $each/intruder; echo x > $each/.git/intruder; done"
        write_story(app, "w", command=f"{tries}; {writes('w.txt')}", repo="../web")
        write_story(app, "a", command=f"{tries}; {writes('a.txt')}", depends_on=["w"])
        ran = run(app, "--cluster", str(cluster.file), "--json")
        assert ran.code == 0, ran.err
        if ran.data["enforcement"] == "none":
            pytest.skip("no write guard on this machine")
        assert len(_clones(cluster, "one")) == 2
        for each in _clones(cluster, "one"):
            assert not (each / "intruder").exists()
            assert not (each / ".git" / "intruder").exists()
    assert git(web, "show", "autopilot/w:w.txt") == "made\n"


@pytest.mark.slow
def test_a_workers_doctor_looks_at_each_clone(app: Path, web: Path, tmp_path: Path) -> None:
    """What stories need in another repository, and a worker lacks, is a note that names both."""
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "only-here").write_text("#!/bin/sh\n")
    (commands / "only-here").chmod(0o755)
    (web / "autopilot-multi.toml").write_text("verify = ['only-here']\n")
    git(web, "commit", "-qam", "checked by a program")
    write_story(app, "a", command=writes("a.txt"), verify="test -f a.txt")
    write_story(app, "w", command=writes("w.txt"), repo="../web")
    with machines(tmp_path / "cluster", "one") as cluster:
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"
        ran = run(app, "--cluster", str(cluster.file), "--max-attempts=1", env={"PATH": path})
    assert ran.code != 0
    (said,) = {line.partition("note: ")[2] for line in ran.err.splitlines() if "note: worker one:" in line}
    assert said.startswith("worker one: verify: `only-here` cannot run: only-here")
    assert said.endswith("(in web)")

"""A target that others move more often than a verification takes: it is held, and all stories land."""

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from trio import to_thread

from isolation.errors import TargetError
from isolation.git.landing.held_index import take_index
from isolation.git.repository import Repository
from runner.land.hold import LOST_BEFORE, holding
from tests.acceptance.program import Running, run, started, wait_until
from tests.acceptance.test_land import done_stories, tree_of
from tests.conftest import git


@contextmanager
def somebody_commits(repo: Path) -> Iterator[None]:
    """Commit to the target every 200 ms."""
    stop = threading.Event()

    def commit() -> None:
        number = 0
        while not stop.wait(0.2):
            number += 1
            (repo / "log.txt").write_text(f"{number}\n")
            # Either may meet the lock of the index, and fails then; it must not succeed halfway.
            for args in (["add", "log.txt"], ["commit", "-q", "-m", f"other {number}"]):
                subprocess.run(["git", *args], cwd=repo, check=False, capture_output=True)

    somebody = threading.Thread(target=commit)
    somebody.start()
    try:
        yield
    finally:
        stop.set()
        somebody.join()


def test_everything_lands_while_somebody_commits(repo: Path) -> None:
    """Twenty stories land although the target moves faster than it is verified, on a tip that was tested."""
    names = [f"s{number:02}" for number in range(20)]
    done_stories(repo, *names, verify="sleep 0.5; git rev-parse HEAD:")
    with somebody_commits(repo):
        landed = run(repo, "land", "--json", limit=120)
    assert landed.code == 0, landed.err
    assert sorted(landed.data["landed"]) == names
    print(f"rebuilds: {landed.data['rebuilds']}, verify runs: {landed.data['verify_runs']}")  # noqa: T201  a figure
    assert landed.data["rebuilds"] >= 3, "the target is only held after some races were lost"
    assert "commits to it have to wait" in landed.err
    assert not (repo / ".git" / "index.lock").exists()
    git(repo, "merge-base", "--is-ancestor", landed.data["after"], "main")
    assert git(repo, "rev-parse", f"{landed.data['after']}^1").strip() == landed.data["before"]
    assert tree_of(repo, landed.data["after"]) == landed.data["tree"]
    logs = (repo / ".git" / "autopilot" / "runs" / landed.data["landing_id"]).rglob("*.log")
    tested = {line for log in logs for line in log.read_text().split()}
    assert landed.data["tree"] in tested, "the commands themselves have seen this tree"
    there = git(repo, "ls-tree", "--name-only", "main").split()
    assert {f"{name}.txt" for name in names} <= set(there), "no commit of somebody else brings old files back"
    assert {line.split()[-1] for line in git(repo, "status", "--porcelain").splitlines()} <= {"log.txt"}


def test_a_landing_that_is_killed_while_it_holds_the_target(repo: Path) -> None:
    """The next one removes the lock, which is known by its content, and lands."""
    done_stories(repo, "a", "b", verify="true")
    settings = repo / "autopilot-multi.toml"
    slow = "if test -e wait.txt; then sleep 60; else sleep 2; fi"
    settings.write_text(f'land-verify = ["{slow}"]\n')
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "slow")
    lock = repo / ".git" / "index.lock"
    with started(repo, "land") as landing:
        wait_until(lambda: "verifying" in landing.err, what="the first verification")
        for lost in range(1, LOST_BEFORE + 1):
            if lost == LOST_BEFORE:
                (repo / "wait.txt").touch()
                git(repo, "add", "wait.txt")
            git(repo, "commit", "-q", "--allow-empty", "-m", "faster")
            wait_until(partial(_has_lost, landing, lost), what="a lost race")
        assert "commits to it have to wait" in landing.err
        landing.send(signal.SIGKILL)
        landing.finish()
    assert b"autopilot-multi" in lock.read_bytes()
    assert "was interrupted while it verified" in run(repo, "resume").err
    assert not lock.exists()
    settings.write_text('land-verify = ["true"]\n')
    git(repo, "commit", "-q", "-a", "-m", "quick")
    assert sorted(run(repo, "land", "--json").data["landed"]) == ["a", "b"]


def _has_lost(landing: Running, times: int) -> bool:
    return landing.err.count("verified again") == times


async def test_a_target_is_held_for_a_limited_time(repo: Path) -> None:
    """Then others can commit again, and the landing knows that it has lost its hold."""
    said: list[str] = []
    opened = Repository.open(repo)
    lock = repo / ".git" / "index.lock"
    async with holding(opened, "main", lost=LOST_BEFORE - 1, seconds=60, say=said.append) as hold:
        assert not lock.exists(), "too few races were lost"
    async with holding(opened, "main", lost=LOST_BEFORE, seconds=0, say=said.append) as hold:
        assert not lock.exists(), "turned off"
    assert not said
    async with holding(opened, "main", lost=LOST_BEFORE, seconds=60, say=said.append) as hold:
        with pytest.raises(subprocess.CalledProcessError):
            git(repo, "commit", "-q", "--allow-empty", "-m", "too early")
    assert not hold.expired
    assert not lock.exists()
    async with holding(opened, "main", lost=LOST_BEFORE, seconds=0.01, say=said.append) as hold:
        await to_thread.run_sync(partial(wait_until, lambda: not lock.exists(), what="others can commit"))
        git(repo, "commit", "-q", "--allow-empty", "-m", "in time")
        assert hold.take() == ()
    assert hold.expired
    assert len(said) == 2


async def test_a_target_that_another_command_holds(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A landing continues without a hold, and leaves the lock of the other command alone."""
    monkeypatch.setattr("isolation.git.landing.held_index._PATIENCE", 0.0)
    opened = Repository.open(repo)
    other = take_index(opened, repo)
    said: list[str] = []
    async with holding(opened, "main", lost=LOST_BEFORE, seconds=60, say=said.append) as hold:
        assert hold.take() == ()
    assert not said
    assert (repo / ".git" / "index.lock").exists()
    with pytest.raises(TargetError):
        await to_thread.run_sync(take_index, opened, repo)
    other.release()
    assert not (repo / ".git" / "index.lock").exists()

"""Addresses at which no scheduler answers: found out before a run begins, with the reason."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.remote.cluster.wire.messages import ClusterError
from runner.remote.cluster.wire.reach import reach, unreachable
from runner.remote.cluster.worker.clone import Clone
from tests.acceptance.program import commit_stories, run, write_story, writes

pytest.importorskip("distributed")


@pytest.fixture
def silent() -> Iterator[int]:
    """Return a port at which somebody listens and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(5)
        yield listening.getsockname()[1]


def test_who_never_answers_is_given_up(silent: int) -> None:
    """What takes connections and says nothing is not waited for without end."""
    with pytest.raises(OSError, match=r"nothing answers|Timed out") as caught:
        asyncio.run(reach(f"tcp://127.0.0.1:{silent}", None, role="client", limit=0.3))
    said = unreachable(f"tcp://127.0.0.1:{silent}", caught.value)
    assert f"cannot connect to the cluster at tcp://127.0.0.1:{silent}" in said.message
    assert f"tls://127.0.0.1:{silent}" in said.hint


def test_a_worker_is_no_scheduler() -> None:
    """The address of a worker of Dask is a likely mistake, and is named as such."""

    async def ask() -> None:
        from distributed import Scheduler, Worker

        async with (
            Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as scheduler,
            Worker(scheduler.address, nthreads=1, dashboard_address=":0") as worker,
        ):
            await reach(scheduler.address, None, role="client", limit=5)
            await reach(worker.address, None, role="client", limit=5)

    with pytest.raises(ClusterError, match="is not a scheduler but a worker"):
        asyncio.run(ask())


def test_no_run_begins_without_its_cluster(repo: Path) -> None:
    """A wrong address leaves no interrupted run behind."""
    write_story(repo, "a", command=writes("a"))
    commit_stories(repo)
    ran = run(repo, "--cluster", "tcp://no-such-host.invalid:8786")
    assert ran.code == 2
    assert "cannot connect to the cluster at tcp://no-such-host.invalid:8786" in ran.err
    assert not (repo / ".git/autopilot/journal.db").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--contact", "gateway"], "'--contact gateway' is not an address"),
        (["--folder", "/proc/clones"], "this worker cannot write to its folder /proc/clones"),
    ],
)
def test_a_worker_that_cannot_work_says_so(repo: Path, flags: list[str], said: str) -> None:
    """It does not wait for a scheduler first, nor join and refuse every run."""
    ran = run(repo, "worker", "tcp://127.0.0.1:1", *flags)
    assert ran.code in {1, 2}
    assert said in ran.err


def test_a_worker_without_git_says_so(repo: Path, tmp_path: Path) -> None:
    """Nothing that it carries would work."""
    ran = run(repo, "worker", "tcp://127.0.0.1:1", env={"PATH": str(tmp_path)})
    assert ran.code == 2
    assert "git is not installed, or not on the PATH of this worker" in ran.err


def test_a_clone_whose_making_was_killed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone has its name once it is whole; a machine that cannot make one is named, and may later."""
    clone, path = Clone(tmp_path, "0" * 16), os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="git is not installed there"):
        clone.open()
    (clone.folder / "making-1/.git").mkdir(parents=True)
    monkeypatch.setenv("PATH", path)
    made = clone.open()
    assert made.head()
    assert clone.open().top == made.top

"""Workers that are different: of another version, started by Dask itself, with labels."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.program import LIMIT, commit_stories, run, started, wait_until, write_story, writes
from tests.cluster.machines import Machines, events, machines, trees


@pytest.mark.slow
def test_a_worker_of_another_version_is_refused_with_both(repo: Path, tmp_path: Path) -> None:
    """A note names both versions, and the worker gets no story."""
    write_story(repo, "a", command=writes("a"))
    commit_stories(repo)
    with machines(tmp_path / "cluster") as cluster:
        cluster.start("newer", version="9.9")
        with started(repo, "--cluster", str(cluster.file)) as running:
            wait_until(lambda: "9.9" in running.err, what="it says why the worker is not used")
            assert "it has autopilot-multi 9.9 (protocol 4), and this coordinator 0.1.0" in running.err
            running.send(signal.SIGINT)
            running.finish()
    assert not [each for each in events(repo) if each["kind"] == "StoryPlaced"]


@pytest.mark.slow
def test_a_plain_dask_worker_with_our_preload_works(repo: Path, tmp_path: Path) -> None:
    """As documented: `dask worker` with the preload and its variables; a label brings a story to it."""
    write_story(repo, "a", command=writes("a"), needs={"label": "linux", "gpu": 1})
    write_story(repo, "b", command=writes("b"), needs={"label": "other"})
    commit_stories(repo)
    (tmp_path / "cluster").mkdir()
    cluster = Machines(tmp_path / "cluster")
    try:
        cluster.start("ours", "--label=other")
        _start_plain(cluster, tmp_path)
        ran = run(repo, "--cluster", str(cluster.file))
        assert ran.code == 0, ran.err
        placed = {
            each["data"]["story_id"]: each["data"] for each in events(repo) if each["kind"] == "StoryPlaced"
        }
        assert {name: data["worker"] for name, data in placed.items()} == {"a": "plain", "b": "ours"}
        assert set(trees(repo)) == {"autopilot/a", "autopilot/b"}
    finally:
        cluster.close()


def _start_plain(cluster: Machines, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(cluster.file)]
    argv += ["--no-nanny", "--no-dashboard", "--nthreads", "1", "--memory-limit", "0", "--name", "plain"]
    argv += ["--resources", "gpu=1", "--preload", "runner.remote.cluster.worker.preload"]
    home = tmp_path / "plain"
    home.mkdir()
    own = {
        "HOME": str(home),
        "AUTOPILOT_MULTI_WORKER_FOLDER": str(home / "clones"),
        "AUTOPILOT_MULTI_WORKER_LABELS": "linux",
        "AUTOPILOT_MULTI_WORKER_SLOTS": "1",
    }
    with (home / "log").open("wb") as log:
        cluster.workers["plain"] = subprocess.Popen(
            argv, cwd=home, stdout=log, stderr=log, env={**os.environ, **own}, start_new_session=True
        )
    wait_until(lambda: "Registered to" in (home / "log").read_text(), what="it is registered", limit=LIMIT)

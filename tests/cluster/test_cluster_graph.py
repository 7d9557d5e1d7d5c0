"""A whole backlog on four workers, undisturbed."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.program import run, started, wait_until
from tests.cluster.campaign import write_graph
from tests.cluster.machines import events, machines, trees

WORKERS = ("one", "two", "three", "four")


@pytest.mark.slow
def test_forty_stories_on_four_workers_make_the_trees_of_a_local_run(repo: Path, tmp_path: Path) -> None:
    """40 stories with dependencies, on four processes with their own clones and homes: the same tree ids."""
    write_graph(repo, 40, tmp_path / "ledger", 0.0, word="same")
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

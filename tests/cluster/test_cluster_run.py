"""Runs with `--cluster`, by the real program and real workers on loopback."""

import shutil
from pathlib import Path

from tests.acceptance.program import commit_stories, run, write_story, writes
from tests.cluster.machines import events, machines, trees
from tests.conftest import git


def _backlog(repo: Path) -> None:
    for name in ("a", "b"):
        write_story(
            repo, name, command=f"echo working on {name}; {writes(name, name)}", verify=f"test -f {name}"
        )
    write_story(repo, "both", command="cat a b > both", verify="test -s both", depends_on=["a", "b"])
    commit_stories(repo)


def test_a_cluster_makes_the_same_trees_as_this_machine(repo: Path, tmp_path: Path) -> None:
    """Two workers with their own clones and homes carry a graph; all is left as after a local run."""
    _backlog(repo)
    shutil.copytree(repo, tmp_path / "local", symlinks=True)
    assert run(tmp_path / "local").code == 0
    with machines(tmp_path / "cluster", "one", "two", options=("--slots=1",)) as cluster:
        ran = run(repo, "--cluster", str(cluster.file), "--json")
        assert ran.code == 0, ran.err
        assert trees(repo) == trees(tmp_path / "local")
        assert len(trees(repo)) == 3
        ran_on = {line["data"]["worker"] for line in events(repo) if line["kind"] == "StoryPlaced"}
        assert ran_on == {"one", "two"}, "the stories are spread"
        assert "working on a" in run(repo, "logs", "a").out
        assert not git(repo, "for-each-ref", "refs/autopilot/travel"), "what was only for the way is gone"
        assert [story["status"] for story in run(repo, "status", "--json").data["stories"]] == ["done"] * 3
        assert (repo / ".orchestrator").exists(), "the records are written here"

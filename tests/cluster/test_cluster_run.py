"""Runs with `--cluster`, by the real program and real workers on loopback."""

import shutil
from pathlib import Path

from tests.acceptance.program import commit_stories, processes_with, run, write_story, writes
from tests.cluster.machines import events, trees
from tests.conftest import git


def _backlog(repo: Path) -> None:
    for name in ("a", "b"):
        write_story(
            repo, name, command=f"echo working on {name}; {writes(name, name)}", verify=f"test -f {name}"
        )
    write_story(repo, "both", command="cat a b > both", verify="test -s both", depends_on=["a", "b"])
    commit_stories(repo)


def test_a_cluster_makes_the_same_trees_as_this_machine(repo: Path, tmp_path: Path) -> None:
    """Two workers with clones of their own carry a graph; all is left as after a local run."""
    _backlog(repo)
    shutil.copytree(repo, tmp_path / "local", symlinks=True)
    assert run(tmp_path / "local").code == 0
    ran = run(repo, "--cluster", "local:2", "--max-stories=1", "--json")
    assert ran.code == 0, ran.err
    assert trees(repo) == trees(tmp_path / "local")
    assert len(trees(repo)) == 3
    ran_on = {each["data"]["worker"] for each in events(repo) if each["kind"] == "StoryPlaced"}
    assert ran_on <= {"local-1", "local-2"}
    assert ran_on
    assert "working on a" in run(repo, "logs", "a").out
    assert not git(repo, "for-each-ref", "refs/autopilot/travel"), "what was only for the way is gone"
    assert [story["status"] for story in run(repo, "status", "--json").data["stories"]] == ["done"] * 3
    assert (repo / ".orchestrator").exists(), "the records are written here"
    assert not processes_with(str(tmp_path / "home")), "the workers end with the run"

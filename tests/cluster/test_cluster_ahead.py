"""A worker prepares for the story that comes next, by the real program."""

import signal
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story, writes
from tests.cluster.machines import Machines, events, machines
from tests.conftest import git

pytestmark = pytest.mark.slow


def _two(repo: Path, tmp_path: Path) -> Path:
    """Write a story that waits for a file, and one that comes next; return that file."""
    gate = tmp_path / "gate"
    write_story(repo, "a", command=f"until test -e {gate}; do sleep 0.05; done; {writes('a')}")
    write_story(repo, "b", command="stat -c %i stories/b.md > b")
    commit_stories(repo)
    return gate


def _worktree(cluster: Machines) -> Path | None:
    """Return the worktree of b, if it is complete."""
    found = cluster.file.parent.glob("home-one/**/repo.worktrees/b/stories/b.md")
    return next((path.parents[1] for path in found), None)


def test_the_worktree_is_there_before_the_slot_is(repo: Path, tmp_path: Path) -> None:
    """While a story has the only slot, the next one gets its worktree, and begins in that very one."""
    gate = _two(repo, tmp_path)
    with (
        machines(tmp_path / "cluster", "one", options=("--slots=1",)) as cluster,
        started(repo, "--cluster", str(cluster.file)) as running,
    ):
        wait_until(lambda: _worktree(cluster), what="b is prepared")
        made = _worktree(cluster)
        assert made is not None
        file = str((made / "stories/b.md").stat().st_ino)
        kinds = [each["kind"] for each in events(repo) if each["data"].get("story_id") == "b"]
        assert set(kinds) <= {"StoryQueued"}, "that is nothing to remember"
        gate.touch()
        ended = running.finish()
        assert ended.code == 0, ended.err
    assert git(repo, "show", "autopilot/b:b").strip() == file, "it works in what was prepared"
    placed = [each["data"] for each in events(repo) if each["kind"] == "StoryPlaced"]
    assert [(each["story_id"], each["fence"]) for each in placed] == [("a", 1), ("b", 1)]


def test_what_was_prepared_in_vain_is_undone(repo: Path, tmp_path: Path) -> None:
    """A run that is stopped leaves neither a worktree nor a branch of a story that never started."""
    gate = _two(repo, tmp_path)
    with machines(tmp_path / "cluster", "one", options=("--slots=1",)) as cluster:
        with started(repo, "--cluster", str(cluster.file)) as running:
            wait_until(lambda: _worktree(cluster), what="b is prepared")
            assert run(repo, "stop").code == 0
            gate.touch()
            running.finish()
        assert _worktree(cluster) is None
        assert "autopilot/b" not in git(cluster.clone("one"), "branch", "--list", "autopilot/*")
        assert "autopilot/b" not in git(repo, "branch", "--list", "autopilot/*")


def test_a_coordinator_that_comes_back_starts_what_was_prepared(repo: Path, tmp_path: Path) -> None:
    """A kill while a story is prepared costs nothing: the resumed run carries it, and once."""
    gate = _two(repo, tmp_path)
    with machines(tmp_path / "cluster", "one", options=("--slots=1",)) as cluster:
        with started(repo, "--cluster", str(cluster.file)) as running:
            wait_until(lambda: _worktree(cluster), what="b is prepared")
            running.send(signal.SIGKILL)
        with started(repo, "resume") as resumed:
            wait_until(
                lambda: any(each["kind"] == "RunResumed" for each in events(repo)), what="the run is resumed"
            )
            gate.touch()
            ended = resumed.finish()
        assert ended.code == 0, ended.err
    started_at = [each["data"]["story_id"] for each in events(repo) if each["kind"] == "SessionStarted"]
    assert started_at == ["a", "b"]

"""Pause and continue admission from another terminal; what the run cannot do is refused by name."""

from pathlib import Path

import pytest

from isolation.paths import journal_path
from runner.core.model import RunId, Status, StoryId
from runner.records.journal import Journal
from runner.run.control.reader import RunReader
from runner.run.control.requests import Unpause
from runner.run.control.steering import RefusedError, Steering, _answered
from tests.acceptance.program import run, started, wait_until, write_story, writes

A, B = StoryId("a"), StoryId("b")


def _story_that_waits(repo: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Write a story `a`; return the file that its session makes, and the one that it waits for."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    waits = f"touch {ready}; until test -f {go}; do sleep 0.05; done"
    write_story(repo, "a", command=f"{waits}; {writes('a.txt')}")
    return ready, go


def test_a_paused_run_starts_nothing_until_it_is_unpaused(repo: Path, tmp_path: Path) -> None:
    """The running story ends, the next one waits although a slot is free, and starts after `unpause`."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    write_story(
        repo, "a", command=f"touch {ready}; until test -f {go}; do sleep 0.05; done; {writes('a.txt')}"
    )
    write_story(repo, "b", command=writes("b.txt"), depends_on=["a"])
    with started(repo, "run", "--json") as program:
        wait_until(ready.exists, what="the session runs")
        assert "no new story starts" in run(repo, "pause").out
        go.touch()
        with RunReader(str(repo)) as reader:
            wait_until(lambda: reader.read().run.stories[A].status.final, what="a ends")
            wait_until(lambda: reader.read().run.stories[B].status is Status.QUEUED, what="b is ready")
            paused = run(repo, "status", "--json").data
            assert paused["paused"] is True
            assert reader.read().run.stories[B].started_at is None
        assert run(repo, "unpause", "--json").data["paused"] is False
        ran = program.finish()
    assert ran.code == 0, ran.err
    assert ran.story("b")["status"] == "done"
    assert run(repo, "unpause").code == 1, "no run is active any more"


def test_a_request_of_a_newer_version_is_refused_by_name(repo: Path, tmp_path: Path) -> None:
    """A run that does not know what is asked says so, and continues."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    write_story(
        repo, "a", command=f"touch {ready}; until test -f {go}; do sleep 0.05; done; {writes('a.txt')}"
    )
    with started(repo, "run", "--json") as program:
        wait_until(ready.exists, what="the session runs")
        steering = Steering(repo)
        run_id = steering.require_active()
        with Journal.open_existing(journal_path(steering.common_dir)) as journal:
            number = journal.add_request(run_id, "fly", None, {})
            with pytest.raises(RefusedError, match="does not know 'fly'"):
                wait_until(lambda: _answered(journal, run_id, {number}), what="the run answers")
        assert steering.send(Unpause()).taken
        go.touch()
        assert program.finish().code == 0
    assert steering.active is None
    assert RunId(run_id) == run(repo, "status", "--json").data["run_id"]

"""Where the program looks at the machine: at the disk of the worktrees, with one probe for a whole run."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from runner.core.limits.agent_sessions import AgentProgram
from runner.core.schedule.resources import ResourceSample
from runner.machine import probe
from runner.plan.plan import RunRequest, make_plan
from runner.plan.shared_tree import EnforcementPlan
from runner.plan.view import view
from runner.run import coordinator as app
from runner.run import window as window_keeper
from runner.run.coordinator import start_run
from tests.acceptance.program import write_story, writes
from tests.run.test_orchestrator import PLENTY, Watcher


async def test_a_run_looks_at_the_disk_of_its_worktrees(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start and at every tick; the checkout may be on another disk."""
    monkeypatch.setattr(window_keeper, "TICK_SECONDS", 0.01)
    write_story(repo, "a", command=f"until test -f {tmp_path}/go; do sleep 0.01; done; {writes('a')}")
    plan = make_plan(RunRequest(directory=repo))
    asked: list[Path] = []

    def sample(path: Path) -> ResourceSample:
        asked.append(path)
        if len(asked) > 4:
            (tmp_path / "go").touch()
        return PLENTY

    with trio.fail_after(60):
        await start_run(plan, Watcher(), sample=sample)
    assert set(asked) == {plan.worktree_root} == {tmp_path / "repo.worktrees"}


async def test_a_run_has_one_probe(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it remembers of the peers at the start still holds at the first tick."""
    made: list[probe.Probe] = []

    class Counted(probe.Probe):
        def __init__(self, programs: Sequence[AgentProgram]) -> None:
            super().__init__(programs)
            made.append(self)

    monkeypatch.setattr(app, "Probe", Counted)
    write_story(repo, "a", command=writes("a"))
    with trio.fail_after(60):
        ended = await start_run(make_plan(RunRequest(directory=repo)), Watcher())
    assert (ended.exit_code, len(made)) == (0, 1)


def test_a_plan_looks_at_the_disk_of_its_worktrees(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan asks for the same place as the run will."""
    write_story(repo, "a", command="true")
    asked: list[Path] = []

    def sample(path: Path, _programs: object) -> ResourceSample:
        asked.append(path)
        return PLENTY

    monkeypatch.setattr(probe, "sample", sample)
    plan = make_plan(RunRequest(directory=repo))
    view(plan, EnforcementPlan())
    assert asked == [plan.worktree_root]

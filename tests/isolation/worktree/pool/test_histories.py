"""Random histories of stories through the pool: after each claim the workspace is what a fresh one is.

Those in worktrees that are layers are in `overlay_histories.py`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from isolation.model import EnforcementLevel, Means, Workspace
from isolation.worktree.pool.making import make_spare
from tests.conftest import git
from tests.isolation.guard.guard_scenes import require
from tests.isolation.worktree.pool import overlay_histories
from tests.isolation.worktree.pool.behavior import DOUBTFUL, HARMLESS, KEPT, Stories, filled

SAMPLE, ALL = 3, int(os.environ.get("CHAOS_HISTORIES", "500"))
OVERLAY_SAMPLE = 4
STEPS = 12
TURNOVER_SAMPLE = 2


class Histories(RuleBasedStateMachine):
    """Stories that behave at will, in runs that follow one another, while the base moves."""

    turnover = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="pool-histories-"))
        self.run_number = 1
        self.workspace: Workspace | None = None

    @initialize()
    def begin(self) -> None:
        """Make a repository, and the pool of a first run."""
        self.stories = Stories(filled(self.folder / "repo"), turnover=self.turnover)
        self.pool = self.stories.pool("run-1")

    @precondition(lambda self: self.workspace is None)
    @rule()
    def claim(self) -> None:
        """Open the next story's worktree: it is a fresh one in all that can be seen."""
        self.workspace = trio.run(self.stories.open, self.pool)
        self.stories.require_fresh(self.workspace)

    @precondition(lambda self: self.workspace is not None)
    @rule(behave=st.sampled_from([*HARMLESS, *DOUBTFUL, *KEPT]))
    def behave(self, behave: object) -> None:
        """Do one thing to the tree."""
        assert self.workspace is not None
        assert callable(behave)
        if self.workspace.path.exists():
            try:
                behave(self.workspace.path)
            except OSError:  # an earlier habit is in the way, which is no matter of the pool
                return

    @precondition(lambda self: self.workspace is not None)
    @rule()
    def end(self) -> None:
        """Finish the story; its tree goes to the pool, to the trash, or stays."""
        assert self.workspace is not None
        trio.run(self.stories.end, self.pool, self.workspace)
        self.workspace = None

    @rule(name=st.sampled_from(["src/f1.py", "src/new.txt", ".gitattributes", "src/.gitattributes"]))
    def move_base(self, name: str) -> None:
        """Commit something on the base."""
        top = self.stories.repository.top
        text = "*.txt text eol=crlf\n" if "attributes" in name else f"base {self.run_number}\n"
        file = top / name
        file.write_text(text + (file.read_text() if file.exists() else ""))
        git(top, "add", "-A")
        git(top, "commit", "-q", "-m", "base")

    @rule(guarded=st.booleans())
    def next_run(self, guarded: bool) -> None:  # noqa: FBT001  hypothesis gives it
        """Let another run have the pool."""
        self.run_number += 1
        self.pool = self.stories.pool(f"run-{self.run_number}", guarded=guarded)
        self.pool.begin()

    @rule()
    def make(self) -> None:
        """Make a spare in the background."""
        stories, pool = self.stories, self.pool
        base = stories.repository.resolve("main")
        assert make_spare(stories.repository, stories.root, base, pool.run_id, guarded=pool.guarded) == ""

    @rule(value=st.sampled_from(["true", "input", "false"]))
    def configure(self, value: str) -> None:
        """Change how git writes files."""
        git(self.stories.repository.top, "config", "core.autocrlf", value)

    def teardown(self) -> None:
        """Remove the repository."""
        shutil.rmtree(self.folder, ignore_errors=True)


class TurnoverHistories(Histories):
    """The same with small trees, which go from story to story within a run."""

    turnover = True


def histories(number: int, machine: type[Histories] = Histories) -> None:
    """Run this many histories."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=number,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=number in {SAMPLE, TURNOVER_SAMPLE},
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_sample_of_histories() -> None:
    """A few of them, always the same."""
    histories(SAMPLE)
    histories(TURNOVER_SAMPLE, TurnoverHistories)


def _in_overlays(number: int, *words: str) -> None:
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    argv = [sys.executable, "-m", overlay_histories.__name__, str(number), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_sample_of_histories_in_overlays() -> None:
    """A few of them, always the same."""
    _in_overlays(OVERLAY_SAMPLE, "always")


@pytest.mark.slow
def test_thirty_histories() -> None:
    """Fifteen each through the pool, from story to story and in overlays, others each time."""
    histories(15)
    histories(15, TurnoverHistories)
    _in_overlays(15)


@pytest.mark.chaos
def test_many_histories_in_overlays() -> None:
    """Five hundred of them."""
    _in_overlays(ALL)


@pytest.mark.chaos
@pytest.mark.parametrize("machine", [Histories, TurnoverHistories])
def test_many_histories(machine: type[Histories]) -> None:
    """Five hundred of them."""
    histories(ALL, machine)

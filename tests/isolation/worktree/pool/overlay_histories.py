"""Random histories of stories in worktrees that are layers; as a program, since it needs mounts of its own.

`python -m tests.isolation.worktree.pool.overlay_histories NUMBER [always]` runs this many, with `always` the
same ones each time. After each claim the workspace is what a fresh one is, a kill loses nothing, what is made
an ordinary worktree looks as before, and nobody ever changes the checkout below.
"""

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

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

from isolation.keeper.confined import forget_servers
from isolation.kernel.layers import is_covered, part_from_machine, uncover
from isolation.model import Workspace
from isolation.worktree.layers.lifting import make_plain
from isolation.worktree.layers.records import clear_dead, layer_at, load_layers
from isolation.worktree.layers.seeing import cover_all
from isolation.worktree.opening import create_or_attach
from isolation.worktree.pool.bottoms import Bottoms, load_bottoms
from isolation.worktree.pool.claim import is_unchanged
from isolation.worktree.pool.seals import surroundings_of
from isolation.worktree.removal import close
from tests.acceptance.program import wait_until
from tests.conftest import GIT_ENVIRONMENT, git
from tests.isolation.worktree.pool.behavior import (
    DOUBTFUL,
    HARMLESS,
    KEPT,
    Stories,
    filled,
    pictured,
    quietly,
)
from tests.isolation.worktree.worktrees import wanted

STEPS = 30
PATIENCE = 20.0
_OWN = ("refreshed",)
"""What differs until git has looked at the files again."""


class OverlayHistories(RuleBasedStateMachine):
    """Stories that behave at will, in runs that follow one another, while the base moves."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="overlay-histories-"))
        self.run_number = 1
        self.story_number = 0
        self.open: list[Workspace] = []

    @initialize()
    def begin(self) -> None:
        """Make a repository, and its first run."""
        self.stories = Stories(filled(self.folder / "repo"))
        self.repository = self.stories.repository
        self.bottoms = self._bottoms()

    def _bottoms(self) -> Bottoms:
        return Bottoms(repository=self.repository, root=self.stories.root, run_id=f"run-{self.run_number}")

    @precondition(lambda self: len(self.open) < 2)
    @rule()
    def claim(self) -> None:
        """Open the next story's worktree: it is a layer, and a fresh one in all that can be seen."""
        self.story_number += 1
        request = wanted(self.repository, f"s{self.story_number}", run=self.bottoms.run_id)

        async def opened() -> Workspace:
            limiter = trio.CapacityLimiter(2)
            return await create_or_attach(self.repository, request, limiter, bottoms=self.bottoms)

        workspace = trio.run(opened)
        assert is_covered(workspace.path)
        self.stories.require_fresh(workspace)
        self.open.append(workspace)

    @precondition(lambda self: self.open)
    @rule(behave=st.sampled_from([*HARMLESS, *DOUBTFUL, *KEPT]), which=st.integers(0, 1))
    def behave(self, behave: object, which: int) -> None:
        """Do one thing to a tree."""
        assert callable(behave)
        try:
            behave(self.open[which % len(self.open)].path)
        except OSError:  # an earlier habit is in the way
            return

    @precondition(lambda self: self.open)
    @rule()
    def end(self) -> None:
        """Finish a story: its layer goes, or becomes an ordinary worktree that looks the same."""
        workspace = self.open.pop(0)
        quietly(workspace.path, "add", "-A")
        quietly(workspace.path, "commit", "-q", "-m", "all")

        async def closed() -> bool:
            return (await close(self.repository, workspace, sweep=False)).removed

        if not trio.run(closed):
            before = _seen(workspace.path)
            assert make_plain(self.repository, workspace.path) == ""
            assert not is_covered(workspace.path)
            assert _seen(workspace.path) == before
        assert layer_at(self.repository.common_dir, workspace.path) is None
        self._require_pristine()

    @precondition(lambda self: self.open)
    @rule()
    def crash(self) -> None:
        """Kill the run: nothing is mounted any more. The next one finds every tree as it was."""
        before = [_seen(workspace.path) for workspace in self.open]
        for workspace in self.open:
            uncover(workspace.path)
        forget_servers()  # a kill ends them, too, and with them their copies of the mounts
        self.run_number += 1
        self.bottoms = self._bottoms()
        clear_dead(self.repository.common_dir)
        cover_all(self.repository.common_dir, patience=PATIENCE)
        self.bottoms.begin()
        assert [_seen(workspace.path) for workspace in self.open] == before

    @rule(name=st.sampled_from(["src/f1.py", "src/new.txt", ".gitattributes", "src/.gitattributes"]))
    def move_base(self, name: str) -> None:
        """Commit something on the base."""
        top = self.repository.top
        text = "*.txt text eol=crlf\n" if "attributes" in name else f"base {self.run_number}\n"
        file = top / name
        file.write_text(text + (file.read_text() if file.exists() else ""))
        git(top, "add", "-A")
        git(top, "commit", "-q", "-m", "base")

    @precondition(lambda self: not self.open)
    @rule()
    def next_run(self) -> None:
        """Let another run have the checkouts below."""
        self.run_number += 1
        self.bottoms = self._bottoms()
        self.bottoms.begin()

    @precondition(lambda self: not self.open)
    @rule()
    def spoil(self) -> None:
        """Change the checkout below between two runs; the next story finds nothing of it."""
        self.claim()
        self.end()
        for seal in load_bottoms(self.repository.common_dir):
            (Path(seal.path) / "src" / "f1.py").write_text("spoiled\n")
        self.next_run()
        self.claim()

    @rule(value=st.sampled_from(["true", "input", "false"]))
    def configure(self, value: str) -> None:
        """Change how git writes files."""
        git(self.repository.top, "config", "core.autocrlf", value)

    def _require_pristine(self) -> None:
        now = surroundings_of(self.repository).digest
        for seal in load_bottoms(self.repository.common_dir):
            # Where git is set to write files otherwise now, it may call the same bytes a change.
            ours = seal.run_id == self.bottoms.run_id and seal.surroundings == now
            unchanged = partial(is_unchanged, self.repository, seal, thorough=True)
            # A command that was killed a moment ago may still have something there open.
            wait_until(lambda: not ours or unchanged(), what=f"{seal.path} is as it was made", limit=10)  # noqa: B023

    def teardown(self) -> None:
        """Remove the repository."""
        if hasattr(self, "repository"):
            for layer in load_layers(self.repository.common_dir):
                if is_covered(layer.place):
                    uncover(layer.place)
        shutil.rmtree(self.folder, ignore_errors=True)


def _seen(path: Path) -> dict[str, object]:
    """Return all that a session could notice, once git has looked at its files."""
    quietly(path, "update-index", "-q", "--refresh")
    return {key: value for key, value in pictured(path).items() if key not in _OWN}


def main(number: int, *, always: bool) -> None:
    """Run this many histories."""
    run_state_machine_as_test(
        OverlayHistories,
        settings=settings(
            max_examples=number,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=always,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


if __name__ == "__main__":
    import os

    os.environ.update(GIT_ENVIRONMENT)
    part_from_machine()
    main(int(sys.argv[1]), always="always" in sys.argv)

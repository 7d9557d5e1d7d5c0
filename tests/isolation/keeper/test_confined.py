"""Runners of confined commands that are killed from outside."""

import os
import signal
from pathlib import Path

import pytest

from isolation.errors import CommandKilledError
from isolation.keeper.confined import run_confined
from isolation.kernel.process_tree import load_stat
from isolation.model import Confinement, EnforcementLevel, Means
from tests.acceptance.program import wait_until
from tests.isolation.guard.guard_scenes import require


def _shell(folder: Path, script: str) -> str:
    require(EnforcementLevel.DENY, Means.MOUNTS)
    confinement = Confinement(
        level=EnforcementLevel.DENY, means=Means.MOUNTS, read_only={folder / "closed": "closed"}
    )
    ended = run_confined(
        ["/bin/sh", "-c", script], cwd=folder, env={"PATH": os.environ["PATH"]}, confinement=confinement
    )
    return ended.stdout.decode()


def test_a_runner_that_is_killed_while_it_is_idle_is_replaced(tmp_path: Path) -> None:
    """The next command finds another one, and nobody notices."""
    (tmp_path / "closed").mkdir()
    runner = int(_shell(tmp_path, "echo $PPID"))
    assert int(_shell(tmp_path, "echo $PPID")) == runner, "it is kept for the next command"
    os.kill(runner, signal.SIGKILL)
    # Only then are its sockets closed, too: the kernel closes them after almost everything else.
    wait_until(lambda: (stat := load_stat(runner)) is None or not stat.alive, what="it is gone")
    assert int(_shell(tmp_path, "echo $PPID")) != runner


def test_a_command_whose_runner_is_killed_is_an_error_of_its_own(tmp_path: Path) -> None:
    """A story that it ends is stopped, not failed: done again, the command does the same."""
    (tmp_path / "closed").mkdir()
    with pytest.raises(CommandKilledError, match="was killed from outside"):
        _shell(tmp_path, "kill -KILL $PPID; sleep 5")

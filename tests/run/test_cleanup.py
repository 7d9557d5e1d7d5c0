"""Trash of finished worktrees: emptied, and never a silent wait."""

import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from runner.run import cleanup as tidying


def test_a_long_deletion_says_what_the_run_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk is reported once; here the deletion ends only after that."""
    said: list[str] = []
    heard = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        heard.set()

    (tmp_path / ".trash").mkdir()
    monkeypatch.setattr(tidying, "sweep_trash", lambda _root: heard.wait(30))
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(tidying.sweep, tmp_path, say, clock=clock)
    assert len(said) == 1
    assert "deleting the worktrees" in said[0]


def test_a_quick_deletion_says_nothing(tmp_path: Path) -> None:
    """Where the trash is gone before any time has passed there is nothing to tell."""
    root = tmp_path / "trees"
    (root / ".trash" / "one-1").mkdir(parents=True)
    said: list[str] = []
    trio.run(tidying.sweep, root, said.append, clock=trio.testing.MockClock())
    assert not said
    assert not root.exists()

"""Git commands of sessions that wait for a FIFO which another session made of a file of git's."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from runner.run import side_tasks


async def test_who_waits_for_a_fifo_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads an empty file; the FIFO stays under another name, in which its story is told about it."""
    monkeypatch.setattr(side_tasks, "FREE_SECONDS", 0.01)
    head = tmp_path / "worktrees" / "a" / "HEAD"
    head.parent.mkdir(parents=True)
    os.mkfifo(head)
    context = cast(Any, SimpleNamespace(repository=SimpleNamespace(common_dir=tmp_path)))
    with trio.fail_after(10):
        async with side_tasks.freeing(context):
            assert await trio.to_thread.run_sync(head.read_bytes, abandon_on_cancel=True) == b""
    assert not head.exists()
    assert (head.parent / "HEAD.not-a-file").is_fifo()

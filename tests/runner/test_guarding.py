"""The write guard of a run, in real sessions."""

import threading
from pathlib import Path
from typing import Any

import pytest

from isolation.guard import for_worktree
from isolation.model import Confinement, EnforcementLevel, Means
from runner import guarding
from runner.core.model import Status
from tests.acceptance.program import write_story
from tests.isolation.guard_scenes import require
from tests.runner.test_loop import carry, story


async def test_finding_out_what_is_closed_holds_up_nobody(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks, work and verify sessions are all guarded; none lets the other stories wait for the disk."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    threads: list[threading.Thread] = []

    def seen(*args: Any, **named: Any) -> Confinement:
        threads.append(threading.current_thread())
        return for_worktree(*args, **named)

    monkeypatch.setattr(guarding, "for_worktree", seen)
    (repo / "autopilot-multi.toml").write_text('[hooks]\nbefore_run = "true"\n')
    write_story(repo, "a", command="echo x > a", verify=["true"])
    assert story(await carry(repo), "a").status is Status.DONE
    assert len(threads) == len(["hook", "work", "verify"])
    assert threading.main_thread() not in threads

"""The write guard of a run, in real sessions."""

import threading
from pathlib import Path
from typing import Any

import pytest

from isolation.guard.guard import for_worktree
from isolation.model import Confinement, EnforcementLevel, Means
from runner.core.model import Status
from runner.plan import guard
from tests.acceptance.program import write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import require
from tests.story.test_kill_switches import carry, story


async def test_finding_out_what_is_closed_blocks_no_other_task(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks, work and verify sessions are all guarded; none lets the other stories wait for the disk."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    threads: list[threading.Thread] = []

    def seen(*args: Any, **named: Any) -> Confinement:
        threads.append(threading.current_thread())
        return for_worktree(*args, **named)

    monkeypatch.setattr(guard, "for_worktree", seen)
    (repo / "autopilot-multi.toml").write_text('[hooks]\nbefore_run = "true"\n')
    write_story(repo, "a", command="echo x > a", verify=["true"])
    assert story(await carry(repo), "a").status is Status.DONE
    assert len(threads) == len(["hook on the base", "verify on the base", "hook", "work", "verify"])
    assert threading.main_thread() not in threads


async def test_a_selector_is_kept_within_the_worktree_it_runs_in(repo: Path) -> None:
    """It may be a script there that an agent has changed, so it gets no more than a session."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    chosen = '{"mode": "feature", "confidence": 1}'
    write_story(repo, "a", command="echo x > a")
    ended = await carry(repo, selector=f"echo y > {repo}/escaped; echo z > here; echo '{chosen}'")
    assert story(ended, "a").status is Status.DONE
    assert not (repo / "escaped").exists()
    assert git(repo, "show", "autopilot/a:here") == "z\n"

"""The real program where an agent and its surroundings do not fit: it says so before anything starts."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.people import NO_MOUNTS
from tests.acceptance.program import Ran, commit_stories, run, run_in, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import require

SANDBOX = "its own sandbox cannot be set up under the Landlock guard"
FAKE = """#!/bin/sh
echo made > made.txt
echo '{"type": "turn.completed", "usage": {"input_tokens": 1}}'
"""


def under_landlock(repo: Path, *arguments: str, env: dict[str, str]) -> Ran:
    """Run the program within a Landlock: nothing can be mounted there, so that Landlock is its guard."""
    return run_in(repo, *arguments, environ={**os.environ, **env}, landlocks=NO_MOUNTS)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Return a repository with one story for a small fake `codex`.

    It does not lie among the temporary files, which Landlock would close along with it.
    """
    require(EnforcementLevel.DENY, Means.LANDLOCK)
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text(FAKE)
    program.chmod(0o755)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        repo = Path(folder) / "repo"
        repo.mkdir()
        git(repo, "init", "-q", "-b", "main")
        write_story(repo, "a", agent="codex")
        commit_stories(repo)
        yield repo, {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path / "home")}


def checks(ran: Ran) -> dict[str, dict[str, Any]]:
    """Return the checks of `doctor` by name."""
    return {check["name"]: check for check in json.loads(ran.out)["data"]["checks"]}


def test_a_sandbox_that_landlock_forbids_is_told_beforehand(scene: tuple[Path, dict[str, str]]) -> None:
    """Plan, run and `doctor` say in one line that codex cannot run a command here, and the way out."""
    repo, env = scene
    plan = under_landlock(repo, "plan", env=env)
    assert plan.code == 0, plan.err
    (line,) = [line for line in plan.err.splitlines() if SANDBOX in line]
    assert line.startswith("warning: codex: ")
    assert '`permissions = "bypass"` under [agents.codex]' in line
    ran = under_landlock(repo, "--json", env=env)
    assert ran.err.count(SANDBOX) == 1
    told = checks(under_landlock(repo, "doctor", "--json", env=env))["agent codex"]
    assert (told["level"], SANDBOX in told["detail"], "bypass" in told["hint"]) == ("warn", True, True)


@pytest.mark.parametrize("settings", ['[agents.codex]\npermissions = "bypass"\n', "guard = false\n"])
def test_nothing_is_said_where_they_do_not_meet(scene: tuple[Path, dict[str, str]], settings: str) -> None:
    """Without its sandbox, or without the guard, there is nothing to warn of."""
    repo, env = scene
    (repo / "autopilot-multi.toml").write_text(settings)
    assert SANDBOX not in under_landlock(repo, "plan", env=env).err
    assert "agent codex" not in checks(under_landlock(repo, "doctor", "--json", env=env))


def test_mounts_leave_a_sandbox_its_place(scene: tuple[Path, dict[str, str]]) -> None:
    """Under read-only mounts codex's sandbox works, so nothing is said."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    repo, env = scene
    assert SANDBOX not in run(repo, "plan", env=env).err


def test_an_agent_that_would_name_the_user_itself_is_told_of(repo: Path, tmp_path: Path) -> None:
    """Aider looks for a user in git's files alone; without one it would write there, and be refused."""
    program = tmp_path / "bin" / "aider"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    write_story(repo, "a", agent="aider")
    env = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    words = "git's configuration names no user"
    assert f"warning: aider: {words}" in run(repo, "plan", env=env).err
    for key, value in (("user.name", "Me"), ("user.email", "me@example.com")):
        git(repo, "config", key, value)
    assert words not in run(repo, "plan", env=env).err

"""Real codex, its own sandbox and the write guard: what works under which, and what is said beforehand."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.program import Ran, write_story
from tests.acceptance.test_agent_conflicts import SANDBOX, under_landlock
from tests.conftest import git
from tests.isolation.guard.guard_scenes import require
from tests.real_agents.conftest import Stage
from tests.real_agents.stories import carry_one

pytestmark = [pytest.mark.agents, pytest.mark.parametrize("agent", ["codex"])]
UNDER_LANDLOCK = pytest.mark.parametrize("place", ["/dev/shm"])  # noqa: S108  a folder of its own there
"""Outside of the temporary files, which would be closed with the repository."""
COMMIT = {"sh": "git add -A && git commit -q -m work"}


@pytest.fixture
def place() -> str:
    """Name a folder outside of /dev, which codex's sandbox hides."""
    return tempfile.gettempdir()


@pytest.fixture
def repo(place: str) -> Iterator[Path]:
    """Return a repository there."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        repo = Path(folder) / "repo"
        repo.mkdir()
        git(repo, "init", "-q", "-b", "main")
        yield repo


def acts(stage: Stage) -> str:
    """Return a story that writes, commits, and then tries to write into the main checkout."""
    foreign = {"sh": f"echo foreign > {stage.repo}/foreign.txt"}
    return stage.play("a", {"write": ["a.txt", "made"]}, COMMIT, foreign)


def without_mounts(stage: Stage) -> Ran:
    """Carry the story out where Landlock is all that there is."""
    require(EnforcementLevel.DENY, Means.LANDLOCK)
    write_story(stage.repo, "a", body=acts(stage), agent="codex")
    return under_landlock(stage.repo, "--json", stage.model, env=stage.env)


def test_its_sandbox_works_under_mounts(stage: Stage) -> None:
    """Two walls, one within the other: it commits, and where the checkout is it finds its own tree."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    look = {"sh": "pwd -P > where.txt && git status && git worktree list"}
    foreign = {"sh": f"echo own > {stage.repo}/foreign.txt; echo evil > {stage.repo}.worktrees/evil"}
    ran = carry_one(stage, stage.play("a", {"write": ["a.txt", "made"]}, look, foreign, COMMIT))
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert git(stage.repo, "log", "-1", "--format=%s", "autopilot/a").strip() == "work"
    shown = [git(stage.repo, "show", f"autopilot/a:{name}.txt").strip() for name in ("a", "where", "foreign")]
    assert shown == ["made", str(stage.repo), "own"]
    assert not (stage.repo / "foreign.txt").exists()
    assert SANDBOX not in ran.err


@UNDER_LANDLOCK
def test_under_landlock_it_cannot_run_a_command_and_that_is_said_first(stage: Stage) -> None:
    """Every command fails while codex calls its turn complete; the run has said why before it began."""
    ran = without_mounts(stage)
    assert ran.data["enforcement"] == "deny", ran.err
    assert (ran.code, ran.story("a")["status"]) == (3, "no_work"), ran.err
    assert ran.err.index(SANDBOX) < ran.err.index("session 1 started")
    assert any("bwrap" in asked["last"] for asked in stage.scene.requests_of("a"))


@UNDER_LANDLOCK
def test_the_way_out_leaves_the_guard(stage: Stage) -> None:
    """With `bypass` codex does without its sandbox; Landlock still keeps it out of the checkout."""
    stage.configure(bypass=True)
    ran = without_mounts(stage)
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert ran.data["enforcement"] == "deny"
    assert not (stage.repo / "foreign.txt").exists()
    assert SANDBOX not in ran.err


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("guard", [(), ("--no-guard",)])
def test_it_writes_nothing_into_its_users_configuration(
    stage: Stage, guard: tuple[str, ...], *, bypass: bool
) -> None:
    """Whether it trusts the repository is said for the session alone, not by a note of its own for good."""
    config = Path(os.environ["HOME"], ".codex", "config.toml")
    config.parent.mkdir()
    config.write_text('# My own.\nmodel_reasoning_effort = "low"\n[projects."/elsewhere"]\n')
    before = config.read_bytes()
    stage.configure(bypass=bypass)
    ran = carry_one(stage, stage.play("a", {"write": ["a.txt", "made"]}, COMMIT), *guard)
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert config.read_bytes() == before

"""`land` verifies several prefixes of the train at once, within the window and the tiers of the machine."""

import signal
from pathlib import Path

from tests.acceptance.landing_processes import marked, marked_processes
from tests.acceptance.program import commit_stories, run, started, wait_until, write_story, writes
from tests.acceptance.test_land import tip_of
from tests.conftest import git

PRESSED = """
[tiers]
green = { memory-gb = 999999 }
warn = { memory-gb = 999999 }
degraded = { memory-gb = 999999 }
"""


def backlog(repo: Path, count: int) -> list[str]:
    """Run stories that each make a file."""
    names = [f"s{number}" for number in range(count)]
    for name in names:
        write_story(repo, name, command=writes(f"{name}.txt"))
    commit_stories(repo)
    assert run(repo, "--json").code == 0
    return names


def configure(repo: Path, verify: str, more: str = 'window = "fixed"\n') -> None:
    """Commit how a landing is verified."""
    (repo / "autopilot-multi.toml").write_text(f"max-stories = 4\nland-verify = ['{verify}']\n{more}")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "verify landings")


def test_prefixes_are_verified_ahead_but_not_under_memory_pressure(repo: Path) -> None:
    """Runs that were not needed are counted apart; with one slot there are none. The outcome is the same."""
    names = backlog(repo, 6)
    red = "sleep 0.3; test ! -e s1.txt || test ! -e s4.txt"
    configure(repo, red, more=PRESSED)
    before = tip_of(repo)
    pressed = run(repo, "land", "--json")
    assert pressed.code == 4, pressed.err
    assert pressed.data["landed"] == [name for name in names if name != "s4"]
    assert pressed.data["unused_runs"] == pressed.data["canceled_runs"] == 0
    assert ", ahead" not in pressed.err
    assert run(repo, "undo", "--yes").code == 0
    assert tip_of(repo) == before

    configure(repo, red)
    landed = run(repo, "land", "--json")
    assert landed.code == 4, landed.err
    assert landed.data["landed"] == pressed.data["landed"]
    assert landed.data["not_landed"][0]["with"] == ["s1"]
    assert landed.data["verify_runs"] == pressed.data["verify_runs"], "what counts does not depend on slots"
    assert landed.data["unused_runs"] + landed.data["canceled_runs"] > 0
    assert ", ahead" in landed.err
    assert len(git(repo, "worktree", "list").splitlines()) == 1


def test_ctrl_c_ends_every_verify_run(repo: Path) -> None:
    """All processes end, no worktree is left, and the target has not moved."""
    backlog(repo, 4)
    configure(repo, "sleep 1000")
    before = tip_of(repo)
    with started(repo, "land", env=marked(repo)) as landing:
        wait_until(lambda: marked_processes(repo).count("sleep") >= 3, what="several runs at once")
        landing.send(signal.SIGINT)
        ended = landing.finish()
    assert ended.code == 130, ended.err
    assert "main has not moved" in ended.err
    assert not marked_processes(repo)
    assert tip_of(repo) == before
    assert len(git(repo, "worktree", "list").splitlines()) == 1
    assert "_land" not in git(repo, "worktree", "list")

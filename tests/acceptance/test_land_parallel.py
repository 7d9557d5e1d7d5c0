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


def test_a_green_train_takes_one_run(repo: Path) -> None:
    """Nothing is verified ahead as long as everything is green."""
    names = backlog(repo, 4)
    configure(repo, "sleep 0.3")
    landed = run(repo, "land", "--json")
    assert landed.data["landed"] == names, landed.err
    assert [landed.data[key] for key in ("verify_runs", "unused_runs", "canceled_runs")] == [1, 0, 0]


def test_ctrl_c_ends_every_verify_run(repo: Path) -> None:
    """All processes end, no worktree is left, and the target has not moved.

    The whole train is red, so the search looks for the culprit with several runs at once, seen live.
    """
    backlog(repo, 4)
    configure(repo, "test ! -e s3.txt || exit 1; sleep 1000")
    before = tip_of(repo)
    with started(repo, "land", env=marked(repo)) as landing:
        wait_until(lambda: marked_processes(repo).count("sleep") >= 3, what="several runs at once")
        shown = run(repo, "status", "--json").data["last_landing"]
        assert shown["verifying"][0] == ["s0", "s1"]
        assert {"s0"} in map(set, shown["verifying"][1:])
        assert len(shown["verifying"]) >= 3
        landing.send(signal.SIGINT)
        ended = landing.finish()
    assert ended.code == 130, ended.err
    assert "main has not moved" in ended.err
    assert not marked_processes(repo)
    assert tip_of(repo) == before
    assert len(git(repo, "worktree", "list").splitlines()) == 1
    assert "_land" not in git(repo, "worktree", "list")


def test_stories_of_a_shared_tree_land_in_one_go(repo: Path) -> None:
    """Their files are in the checkout already; disjoint claims are verified once, and stay byte-identical."""
    names = [f"p{number:02}" for number in range(12)]
    settings = 'bg-isolation = "none"\ndeconflict-paths = ["{id}/**"]\nmax-stories = 4\nenforce = "detect"\n'
    for name in names:
        (repo / name).mkdir()
        (repo / name / "old.txt").write_text("old\n")
        (repo / name / "kept.txt").write_text("before\n")
        work = f"cd {name}; rm old.txt; echo {name} > kept.txt; printf 'a\\r\\n' > new.txt; chmod +x new.txt"
        write_story(repo, name, command=work, verify=[f"test ! -e {name}/old.txt"])
    (repo / "autopilot-multi.toml").write_text(settings)
    (repo / "mine.txt").write_text("committed\n")
    commit_stories(repo)
    ran = run(repo, "--json")
    assert ran.code == 0, ran.err
    assert ran.data["next"] == ran.story("p00")["next"] == "autopilot-multi land"
    (repo / "mine.txt").write_text("dirty\n")
    (repo / "p03" / "kept.txt").write_text("changed by the user\n")
    refused = run(repo, "land")
    assert refused.code == 1
    assert "p03/kept.txt" in refused.err
    assert "p04" not in refused.err
    (repo / "p03" / "kept.txt").write_text("p03\n")
    files = {path: path.read_bytes() for name in names for path in (repo / name).iterdir()}

    landed = run(repo, "land", "--json")
    assert landed.code == 0, landed.err
    assert landed.data["landed"] == names
    assert [landed.data[key] for key in ("verify_runs", "unused_runs", "canceled_runs")] == [1, 0, 0]
    assert git(repo, "status", "--porcelain").split() == ["M", "mine.txt"]
    assert {path: path.read_bytes() for name in names for path in (repo / name).iterdir()} == files
    assert git(repo, "ls-tree", "-r", "--name-only", "main", "p00").split() == ["p00/kept.txt", "p00/new.txt"]
    assert tip_of(repo) == landed.data["after"]
    assert run(repo, "undo", "--yes").code == 0
    assert (repo / "p00" / "old.txt").read_text() == "old\n"
    assert git(repo, "status", "--porcelain").split() == ["M", "mine.txt"]

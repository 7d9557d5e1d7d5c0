"""`--base-follow`: a run takes the new tip of its base branch for stories that have not started."""

import signal
import subprocess
from pathlib import Path

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.conftest import git


def commits(repo: Path, name: str, *, then: str = "true") -> str:
    """Return a command with which a story does its work while somebody else commits to main."""
    other = (
        f"cd {repo} && echo {name} > main-{name}.txt && {then} && git add -A && git commit -qm main-{name}"
    )
    return f"echo {name} > {name}.txt; (unset GIT_DIR GIT_INDEX_FILE; {other})"


def test_stories_that_have_not_started_begin_at_the_new_tip(repo: Path, tmp_path: Path) -> None:
    """Each has its base recorded; a tip on which the commands fail is not taken, a known tree not asked."""
    asked = tmp_path / "asked"
    check = f"git rev-parse HEAD^{{tree}} >> {asked}; test ! -e red.txt"
    (repo / "autopilot-multi.toml").write_text(f'verify = ["{check}"]\nguard = false\nmax-stories = 1\n')
    write_story(repo, "a", command=commits(repo, "a"), priority=9)
    write_story(repo, "b", command=commits(repo, "b", then="touch red.txt"), priority=8)
    write_story(repo, "c", command="echo c > c.txt", priority=7)
    write_story(repo, "d", command="echo d > d.txt", depends_on=["a"])
    commit_stories(repo)
    first = git(repo, "rev-parse", "main").strip()
    ran = run(repo, "--base-follow", "--json")
    assert ran.code == 0, ran.out + ran.err
    second, third = git(repo, "rev-parse", "main~1", "main").split()
    assert [ran.story(name)["base"] for name in ("a", "b", "c")] == [first, second, second]
    assert ran.story("d")["base"] == git(repo, "rev-parse", "autopilot/a").strip()
    assert f"stories now start from {second[:10]}" in ran.err
    assert ran.err.count(f"main has moved to {third[:10]}, but") == 1
    trees = git(repo, "rev-parse", f"{first}^{{tree}}", f"{second}^{{tree}}", f"{third}^{{tree}}").split()
    assert [asked.read_text().split().count(tree) for tree in trees] == [1, 1, 1]

    git(repo, "rm", "-q", "red.txt")
    git(repo, "commit", "-qm", "green")
    git(repo, "commit", "-q", "--allow-empty", "-m", "the same files")
    write_story(repo, "e", command=commits(repo, "e"), priority=9)
    write_story(repo, "f", command="echo f > f.txt")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "more stories")
    start = git(repo, "rev-parse", "main").strip()
    plain = run(repo, "e", "f", "--json")
    assert plain.code == 0, plain.err
    assert [plain.story(name)["base"] for name in ("e", "f")] == [start, start], "off unless it is asked for"
    subprocess.run(["git", "fsck", "--strict", "--no-dangling"], cwd=repo, check=True, capture_output=True)


def test_a_resumed_run_keeps_the_bases_of_what_has_started(repo: Path, tmp_path: Path) -> None:
    """Killed in a story that began at the new tip: it continues there, and a later one takes the newest."""
    flag = tmp_path / "flag"
    (repo / "autopilot-multi.toml").write_text("guard = false\nmax-stories = 1\nbase-follow = true\n")
    write_story(repo, "a", command=commits(repo, "a"), priority=9)
    waits = f"echo b > b.txt; test -e {flag} || {{ touch {flag}; sleep 60; }}"
    write_story(repo, "b", command=waits, priority=8)
    write_story(repo, "c", command="echo c > c.txt", priority=7)
    commit_stories(repo)
    with started(repo) as killed:
        wait_until(flag.exists, what="the second story is at work")
        killed.send(signal.SIGKILL)
        killed.finish()
    second = git(repo, "rev-parse", "main").strip()
    git(repo, "commit", "-q", "--allow-empty", "-m", "later")
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    third = git(repo, "rev-parse", "main").strip()
    assert [resumed.story(name)["base"] for name in ("b", "c")] == [second, third]
    assert git(repo, "rev-list", "--count", f"{second}..autopilot/b").strip() == "1"

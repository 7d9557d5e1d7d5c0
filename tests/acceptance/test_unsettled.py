"""A first session works while the files of its worktree go to the disk; a crash before that costs no file."""

import os
import signal
import time
from pathlib import Path

from isolation.paths import own_git_dir, worktree_root
from isolation.worktree.power_loss import UNSETTLED
from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.cluster.machines import moments
from tests.conftest import git

MARK = f"$(git rev-parse --git-dir)/{UNSETTLED}"
LONG = "".join(f"line {number}\n" for number in range(200))


def test_a_session_need_not_wait_for_the_disk(repo: Path) -> None:
    """It begins with the mark there, and sees it go while it works."""
    write_story(repo, "a", command=f"test -e {MARK} && while test -e {MARK}; do sleep 0.05; done; echo > x")
    commit_stories(repo)
    ended = run(repo)
    assert ended.code == 0, ended.err
    assert git(repo, "show", "--name-only", "--format=", "autopilot/a") == "x\n"


def test_what_a_short_session_leaves_waits_for_the_first_files_of_others(repo: Path) -> None:
    """Its end is recorded once the stories that wait for their files have them: the disk is theirs first."""
    others = [f"b{number}" for number in range(os.cpu_count() or 1)]  # as many as are checked out at once
    root, go, ended = worktree_root(repo / ".git"), repo.parent / "go", repo.parent / "ended"
    wait = f"touch .waiting; until test -e {go}; do sleep 0.02; done; rm -f .waiting"
    git(repo, "config", "filter.slow.smudge", f"case $PWD in *.worktrees/b*) {wait};; esac; cat")
    (repo / ".gitattributes").write_text("README.md filter=slow\n")
    begun, may_end = repo.parent / "begun", repo.parent / "may-end"
    hold = f"touch {begun}; until test -e {may_end}; do sleep 0.02; done; echo a > a; touch {ended}"
    write_story(repo, "a", command=hold)
    write_story(repo, "first", command=f"until test -e {begun}; do sleep 0.02; done; echo > first")
    for name in others:
        write_story(repo, name, depends_on=["first"], command=f"echo > {name}")
    commit_stories(repo)
    with started(repo, f"--max-stories={len(others) + 1}", "--window=fixed") as running:
        waiting = [root / name / ".waiting" for name in others]
        wait_until(lambda: all(each.exists() for each in waiting), what="all checkouts wait", limit=60)
        may_end.touch()
        wait_until(ended.exists, what="the session has ended")
        time.sleep(0.5)  # in which its end would be recorded, if nothing held it back
        went_on = time.time()
        go.touch()
        assert running.finish().code == 0
    assert moments(repo, "SessionEnded", story_id="a")[0] > went_on


def test_what_is_kept_is_on_the_disk(repo: Path) -> None:
    """Also after a session that was too short for that, and after none."""
    write_story(repo, "short", command="echo x > x; exit 1")
    write_story(repo, "none", command="echo y > y")
    (repo / "autopilot-multi.toml").write_text(
        "[hooks]\nbefore_run = 'test \"$AUTOPILOT_STORY_ID\" != none'\n"
    )
    commit_stories(repo)
    ended = run(repo, "--max-attempts=1")
    assert ended.code != 0
    for story in ("short", "none"):
        git_dir = own_git_dir(worktree_root(repo / ".git") / story)
        assert git_dir is not None
        assert not (git_dir / UNSETTLED).exists(), story


def test_files_that_a_power_failure_took_are_there_when_the_story_is_resumed(repo: Path) -> None:
    """The coordinator is gone in the first session, and the files had not reached the disk."""
    (repo / "long.txt").write_text(LONG)
    (repo / "second.txt").write_text(LONG)
    begun, go = repo.parent / "begun", repo.parent / "go"
    write_story(
        repo, "a", command=f"touch {begun}; until test -e {go}; do sleep 0.05; done; cat long.txt > copy"
    )
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "files")
    with started(repo) as running:
        wait_until(begun.exists, what="the session works")
        running.send(signal.SIGKILL)
    tree = worktree_root(repo / ".git") / "a"
    git_dir = own_git_dir(tree)
    assert git_dir is not None
    (git_dir / UNSETTLED).touch()  # it may have gone already, without a power failure
    os.truncate(tree / "long.txt", 0)
    os.truncate(tree / "second.txt", 30)
    os.truncate(git_dir / "index", 0)
    go.touch()
    ended = run(repo, "resume")
    assert ended.code == 0, ended.err
    assert git(repo, "show", "--name-only", "--format=", "autopilot/a") == "copy\n"
    assert git(repo, "show", "autopilot/a:copy") == LONG

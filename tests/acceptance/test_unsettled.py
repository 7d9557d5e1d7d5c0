"""A first session works while the files of its worktree go to the disk; a crash before that costs no file."""

import os
import signal
from pathlib import Path

from isolation.paths import own_git_dir, worktree_root
from isolation.worktree.power_loss import UNSETTLED
from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
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

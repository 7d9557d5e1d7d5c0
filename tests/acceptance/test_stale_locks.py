"""Git locks that killed sessions leave: removed where nobody can hold them, and never those of the user."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from isolation.git.repository import Repository
from isolation.worktree.stale_locks import remove_stale_locks
from tests.acceptance.program import run, wait_until, write_story
from tests.conftest import git

LEAVES = (
    "d=$(git rev-parse --git-dir); c=$(git rev-parse --git-common-dir); echo $AUTOPILOT_ATTEMPT >> made; "
    "touch $d/index.lock $d/HEAD.lock $c/refs/heads/autopilot/$AUTOPILOT_STORY_ID.lock"
)


def test_locks_of_a_killed_session_cost_no_story(repo: Path) -> None:
    """The work is committed, and `--retry-failed` finds no lock either."""
    write_story(repo, "a", command=LEAVES)
    write_story(repo, "c", command=f"{LEAVES}; exec sh -c 'test -f {shlex.quote(str(repo))}.ok'")
    ran = run(repo, "--json", "--max-attempts=1")
    statuses = {name: ran.story(name)["status"] for name in "ac"}
    assert statuses == {"a": "done", "c": "failed"}, ran.err
    assert "index.lock, which a killed git command left and no process holds" in ran.err
    (tree,) = [path for path in repo.parent.rglob("worktrees/c") if path.parent.parent.name == ".git"]
    (tree / "index.lock").touch()
    Path(f"{repo}.ok").touch()
    again = run(repo, "resume", "--retry-failed", "--json")
    assert again.story("c")["status"] == "done", again.err


def test_a_lock_that_may_be_in_use_stays(repo: Path, tmp_path: Path) -> None:
    """A real commit that waits for its editor, a file that is open, and the locks of the whole repository."""
    tree = tmp_path / "tree"
    git(repo, "worktree", "add", "-q", "-b", "autopilot/a", str(tree))
    repository = Repository.open(repo)
    git_dir = repo / ".git" / "worktrees" / "tree"
    config, index = repo / ".git" / "config.lock", git_dir / "index.lock"
    config.touch()
    (tree / "new").write_text("x")
    git(tree, "add", "new")
    editor = ["git", "-C", str(tree), "-c", "core.editor=sleep 60 #", "commit", "-a"]
    with subprocess.Popen(editor, stdout=subprocess.DEVNULL, start_new_session=True) as commit:
        wait_until(index.exists, what="git holds its lock")
        assert remove_stale_locks(repository, tree, "autopilot/a") == ()
        os.killpg(commit.pid, signal.SIGKILL)
    assert remove_stale_locks(repository, tree, "autopilot/a") == (index,)
    of_branch = repo / ".git" / "refs" / "heads" / "autopilot" / "a.lock"
    with of_branch.open("w"):
        assert remove_stale_locks(repository, tree, "autopilot/a") == (), "it is open here"
    assert remove_stale_locks(repository, tree, "autopilot/a") == (of_branch,)
    assert config.exists()


def test_a_lock_on_the_branch_costs_no_story_in_the_shared_tree(repo: Path) -> None:
    """Killed while it made the branch, git leaves a lock on a branch that is not there yet."""
    lock = repo / ".git" / "refs" / "heads" / "autopilot" / "a.lock"
    lock.parent.mkdir()
    lock.touch()
    write_story(repo, "a", command="echo x > made")
    ran = run(repo, "--json", "--bg-isolation=none", "--deconflict-paths=made")
    assert ran.story("a")["status"] == "done", ran.err
    assert "a.lock, which a killed git command left and no process holds" in ran.err


def test_only_who_was_there_before_a_lock_can_hold_it(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The git commands of other stories come and go in the shared tree; the one that stays may hold it."""
    of_branch, index = repo / ".git" / "refs" / "heads" / "a.lock", repo / ".git" / "index.lock"
    of_branch.touch()
    index.touch()
    repository, running = Repository.open(repo), [_waiting_git(repo)]

    def end_all() -> None:
        for process in running:
            process.communicate()
        running.clear()

    def another(_: float) -> None:
        end_all()
        running.append(_waiting_git(repo))

    try:
        monkeypatch.setattr("time.sleep", lambda _: None)
        assert remove_stale_locks(repository, None, "a") == ()
        monkeypatch.setattr("time.sleep", another)
        assert remove_stale_locks(repository, None, "a") == (of_branch,)
    finally:
        end_all()
    assert index.exists(), "in the shared tree it is the user's"


def _waiting_git(repo: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["git", "cat-file", "--batch"], cwd=repo, stdin=subprocess.PIPE)

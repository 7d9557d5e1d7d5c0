"""Worktrees are made while others work, and undone when their story does not start after all."""

import os
import signal
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.conftest import git

AWAITS = (
    "there=../repo.worktrees/{0}; [ -d ../repo.worktrees ] || there=../{0}; "
    "for _ in $(seq 300); do [ -f $there/.git ] && [ -d $there/stories ] && {1}; sleep 0.05; done; exit 1"
)


def awaits(name: str, then: str) -> str:
    """Return a command that waits for another story's filled worktree."""
    return AWAITS.format(name, then)


def left(repo: Path) -> tuple[set[str], set[str]]:
    """Return the worktrees and the branches of stories."""
    root = repo.parent / f"{repo.name}.worktrees"
    trees = {path.name for path in root.glob("[!.]*")}
    refs = git(repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/autopilot").split()
    return trees, {ref.removeprefix("autopilot/") for ref in refs}


def test_the_next_worktree_exists_before_its_story_has_a_slot(repo: Path) -> None:
    """With one slot, the first story sees the second one's tree, and the second one runs in it."""
    write_story(repo, "a", priority=1, command=awaits("b", "{ echo a > a.txt; exit 0; }"))
    write_story(repo, "b", command="echo b > b.txt")
    commit_stories(repo)
    ran = run(repo, "--max-stories=1", "--json")
    assert ran.code == 0, ran.err
    a, b = ran.story("a"), ran.story("b")
    assert (a["status"], b["status"]) == ("done", "done")
    assert b["started_at"] >= a["ended_at"]
    assert left(repo) == (set(), {"a", "b"})


def test_a_story_that_is_skipped_leaves_no_worktree_and_no_branch(repo: Path) -> None:
    """`--continue never`: the first one fails when the second one's tree exists; it is undone."""
    write_story(repo, "a", priority=1, command=awaits("b", "exit 9"))
    write_story(repo, "b", command="echo b > b.txt")
    commit_stories(repo)
    ran = run(repo, "--max-stories=1", "--continue=never", "--json")
    assert {story["id"]: story["status"] for story in ran.data["stories"]} == {"a": "failed", "b": "skipped"}
    assert left(repo) == ({"a"}, {"a"})


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)])
def test_a_run_that_is_stopped_undoes_what_it_prepared(
    repo: Path, signals: tuple[signal.Signals, ...]
) -> None:
    """The story that never started is stopped like the one that works, and nothing of it is left."""
    write_story(repo, "a", priority=1, command=awaits("b", "sleep 60"))
    write_story(repo, "b", command="echo b > b.txt")
    commit_stories(repo)
    with started(repo, "--max-stories=1", "--json", "--grace-seconds=1") as program:
        wait_until(lambda: "b" in left(repo)[1] and (_tree(repo, "b") / "stories").is_dir(), what="b's tree")
        for number in signals:
            program.send_and_await(number, "stopping:")
        ran = program.finish()
    assert {story["id"]: story["status"] for story in ran.data["stories"]} == {"a": "stopped", "b": "stopped"}
    assert left(repo) == ({"a"}, {"a"})


def test_a_run_that_was_killed_continues_in_what_it_prepared(repo: Path) -> None:
    """Acceptance 68: SIGKILL beside a prepared tree; `resume` uses it, and its session runs once."""
    write_story(
        repo, "a", priority=1, command='[ -f "$PWD.again" ] || { touch "$PWD.again"; sleep 60; }; echo a > a'
    )
    write_story(repo, "b", command="echo once >> b.txt")
    commit_stories(repo)
    with started(repo, "--max-stories=1", "--no-guard") as program:
        wait_until((_tree(repo, "b") / "stories").is_dir, what="b's tree is there")
        wait_until(_tree(repo, "a.again").exists, what="a's session has begun")
        os.kill(program.pid, signal.SIGKILL)
        program.finish()
    ran = run(repo, "resume", "--json")
    assert {story["id"]: story["status"] for story in ran.data["stories"]} == {"a": "done", "b": "done"}
    assert git(repo, "show", "autopilot/b:b.txt") == "once\n"
    assert git(repo, "rev-list", "--count", "HEAD..autopilot/b").strip() == "1"


def test_a_tree_that_cannot_be_made_fails_its_story_when_it_has_a_slot(repo: Path) -> None:
    """What is in the way is named, the first story is not affected, and nothing is deleted."""
    write_story(repo, "a", priority=1, command="sleep 0.3; echo a > a.txt")
    write_story(repo, "b", command="echo b > b.txt")
    commit_stories(repo)
    _tree(repo, "b").mkdir(parents=True)
    (_tree(repo, "b") / "mine").write_text("kept")
    ran = run(repo, "--max-stories=1", "--json")
    a, b = ran.story("a"), ran.story("b")
    assert (a["status"], b["status"]) == ("done", "failed")
    assert "is not a worktree of this repository" in b["reason"]
    assert b["started_at"] >= a["ended_at"]
    assert (_tree(repo, "b") / "mine").read_text() == "kept"


def _tree(repo: Path, story_id: str) -> Path:
    return repo.parent / f"{repo.name}.worktrees" / story_id

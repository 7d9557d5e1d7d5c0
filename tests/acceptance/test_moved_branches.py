"""The branches of finished stories are checked at the end of a run."""

from pathlib import Path

import pytest

from tests.acceptance.program import run, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount

sealed = pytest.mark.skipif(not can_mount(), reason="this machine cannot mount")

MOVES = (
    "until git rev-parse -q --verify refs/heads/autopilot/a >/dev/null; do sleep 0.05; done; echo b > b; "
    "git add b; git commit -qm b; git update-ref refs/heads/autopilot/a HEAD"
)


@sealed
def test_a_session_moves_the_branch_of_its_own_story_only(repo: Path) -> None:
    """It sees the others and can make branches for itself; what it does to others has no effect and is named.

    Its own branch is up to date outside as soon as it has ended, also in the log that git keeps.
    """
    own = "echo b > b; git add b; git commit -qm b; git commit -q --amend -m c"
    own = f"{own}; git checkout -qb autopilot/aside"
    moves = "git update-ref refs/heads/autopilot/a HEAD && git update-ref refs/heads/autopilot/x HEAD"
    deletes = "! git branch -qD autopilot/packed && ! git pack-refs --all"
    git(repo, "branch", "autopilot/packed")
    git(repo, "pack-refs", "--all")
    write_story(repo, "a", command="echo a > a")
    sees = "git show autopilot/a:a && git log -1 autopilot/packed"
    back = "git checkout -q autopilot/b && git merge-base --is-ancestor main HEAD"
    write_story(repo, "b", command=f"{sees} && {own} && {moves} && {deletes}; {back}", depends_on=["a"])
    wrecks = 'cd "$(git rev-parse --git-common-dir)"; mkdir objects/ff; mkfifo objects/ff/made; rm -r refs/*'
    waits = 'cd "$(git rev-parse --git-dir)"; for N in HEAD commondir; do rm -f $N; mkfifo $N; done'
    write_story(repo, "c", command=f"echo c > c; {wrecks}; exit 0")
    met = "until [ -e {0}/{1} ]; do sleep 0.05; done"
    meet = repo.parent
    write_story(repo, "d", command=f"{waits}; touch {meet}/planted; {met.format(meet, 'listed')}")
    write_story(
        repo, "e", command=f"{met.format(meet, 'planted')}; git worktree list > e; touch {meet}/listed"
    )
    ran = run(repo, "--max-stories", "4", "--window", "fixed", "--json")
    assert [ran.story(name)["status"] for name in "abced"] == ["done"] * 4 + ["failed"], ran.err
    assert "worktrees/d/HEAD" in ran.story("d")["reason"]
    assert (repo / ".git" / "worktrees" / "d" / "commondir").read_text() == "../..\n"
    assert git(repo, "rev-parse", "autopilot/a").strip() == ran.story("a")["commit"]
    assert git(repo, "log", "-1", "--format=%s", "autopilot/b") == "c\n"
    refs = git(repo, "for-each-ref", "--format=%(refname)", "refs/heads/autopilot").split()
    assert refs == [f"refs/heads/autopilot/{name}" for name in ("a", "b", "c", "d", "e", "packed")]
    assert git(repo, "show", "autopilot/c:c") == "c\n"
    (log,) = repo.glob(".git/autopilot/runs/*/c/*.log")
    assert "it deleted the branch of its story, which stays as it was" in log.read_text()
    assert "it left what is no object of git among its objects, which was removed: ff/made" in log.read_text()
    (log,) = repo.glob(".git/autopilot/runs/*/b/*.log")
    named = "no effect outside of its worktree: autopilot/a, autopilot/aside, autopilot/x"
    assert named in log.read_text()
    left = [each.name for each in (repo / ".git" / "autopilot" / "refs").iterdir()]
    assert left == ["d"], "what was a worktree's own goes with it"


def test_a_story_whose_branch_another_one_moved_is_not_done(repo: Path) -> None:
    """What was verified is kept under a ref, the difference is named, and the offered command repairs it.

    Without a guard a session can move the branches of others.
    """
    write_story(repo, "a", command="echo a > a")
    write_story(repo, "b", command=MOVES, depends_on=["x"])
    write_story(repo, "x", command="echo x > x", depends_on=["a"])
    write_story(repo, "c", command="echo c > c")
    ran = run(repo, "--no-guard", "--json")
    story = ran.story("a")
    assert (ran.code, story["status"]) == (4, "failed"), ran.err
    assert [ran.story(name)["status"] for name in "bcx"] == ["done"] * 3
    commit = story["commit"]
    assert f"from {commit[:12]}, which was verified" in story["reason"]
    assert "which differs in b, x" in story["reason"]
    assert story["next"].startswith("git branch --force autopilot/a refs/autopilot/finished/")
    git(repo, *story["next"].split()[1:])
    assert git(repo, "rev-parse", "autopilot/a").strip() == commit


def test_a_story_whose_branch_another_one_deleted_is_not_done(repo: Path) -> None:
    """Its commit is kept under a ref and restored by the offered command; one that was merged needs none."""
    write_story(repo, "a", command="echo a > a")
    write_story(repo, "x", command="echo x > x")
    deletes = "; ".join(f"git update-ref -d refs/heads/autopilot/{name}" for name in "ax")
    merges = f"git -C {repo} merge -q --ff-only autopilot/x"
    write_story(repo, "b", command=f"{merges} && {deletes}; echo b > b", depends_on=["a", "x"])
    ran = run(repo, "--json", "--no-guard")
    story = ran.story("a")
    assert (ran.code, story["status"]) == (4, "failed"), ran.err
    assert [ran.story(name)["status"] for name in "bx"] == ["done"] * 2
    assert f"was deleted after it was done: it held {story['commit'][:12]}" in story["reason"]
    assert story["next"].startswith("git branch autopilot/a refs/autopilot/finished/")
    git(repo, *story["next"].split()[1:])
    assert git(repo, "rev-parse", "autopilot/a").strip() == story["commit"]

"""The branches of finished stories are checked at the end of a run."""

from pathlib import Path

from tests.acceptance.program import run, write_story
from tests.conftest import git

MOVES = (
    "until git rev-parse -q --verify refs/heads/autopilot/a >/dev/null; do sleep 0.05; done; echo b > b; "
    "git add b; git commit -qm b; git update-ref refs/heads/autopilot/a HEAD"
)


def test_a_story_whose_branch_another_one_moved_is_not_done(repo: Path) -> None:
    """What was verified is kept under a ref, the difference is named, and the offered command repairs it."""
    write_story(repo, "a", command="echo a > a")
    write_story(repo, "b", command=MOVES, depends_on=["x"])
    write_story(repo, "x", command="echo x > x", depends_on=["a"])
    write_story(repo, "c", command="echo c > c")
    ran = run(repo, "--json")
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

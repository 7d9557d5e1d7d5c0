"""Stories that are built on what landed as other commits: their branches follow, and nothing is lost."""

import signal
from pathlib import Path

import pytest

from tests.acceptance.program import Ran, commit_stories, run, started, wait_until, write_story
from tests.acceptance.test_land_kills import HOOK
from tests.conftest import git

SETTINGS = 'verify = ["true"]\n'


def tip_of(repo: Path, name: str = "main") -> str:
    return git(repo, "rev-parse", name).strip()


def files_in(repo: Path, commit: str) -> set[str]:
    return {name for name in git(repo, "ls-tree", "--name-only", commit).split() if name.endswith(".txt")}


def family(repo: Path, **others: str) -> None:
    """Run a parent that makes two files, a child that deletes one, and others on top of the parent."""
    (repo / "autopilot-multi.toml").write_text(SETTINGS)
    write_story(repo, "parent", command="echo draft > draft.txt; echo kept > kept.txt")
    write_story(repo, "child", command="rm draft.txt; echo final > final.txt", depends_on=["parent"])
    for name, command in others.items():
        write_story(repo, name, command=command, depends_on=["parent"])
    commit_stories(repo)
    ran = run(repo, "--json")
    assert ran.code == 0, ran.err


def restacks(ran: Ran) -> dict[str, dict[str, str | None]]:
    return {each["id"]: each for each in ran.data["restacked"]}


@pytest.mark.parametrize("style", ["squash", "rebase"])
def test_what_the_child_deleted_stays_deleted_however_it_is_merged(
    repo: Path, tmp_path: Path, style: str
) -> None:
    """The child and its child move off the parent's own commits; the old tips are kept."""
    (repo / "unrelated.txt").write_text("first\n")
    write_story(repo, "aside", command="echo aside > aside.txt")
    write_story(repo, "late", command="echo late > late.txt", depends_on=["child", "aside"])
    family(repo)
    (repo / "unrelated.txt").write_text("second\n")
    git(repo, "commit", "-qam", "Somebody else")
    old = {name: tip_of(repo, f"autopilot/{name}") for name in ("parent", "child", "late", "aside")}
    first = run(repo, "land", "parent", "--style", style, "--json")
    assert first.data["landed"] == ["parent"], first.err
    main, moved = tip_of(repo), restacks(first)
    assert set(moved) == {"child", "late"}
    for name in moved:
        assert moved[name]["kept"] == f"refs/autopilot/old/{name}/1"
        assert tip_of(repo, f"refs/autopilot/old/{name}/1") == old[name]
        assert tip_of(repo, f"autopilot/{name}") == moved[name]["after"]
    assert moved["child"]["base"] == main
    assert git(repo, "rev-list", "--count", f"{main}..autopilot/child").strip() == "1"
    git(repo, "merge-base", "--is-ancestor", "autopilot/child", "autopilot/late")
    git(repo, "merge-base", "--is-ancestor", old["aside"], "autopilot/late")
    assert (tip_of(repo, "autopilot/aside"), tip_of(repo, "autopilot/parent")) == (
        old["aside"],
        old["parent"],
    )
    assert files_in(repo, "autopilot/late") == {
        *("kept.txt", "final.txt", "late.txt", "aside.txt", "unrelated.txt")
    }
    status = run(repo, "status", "--json")
    assert (status.story("child")["base"], status.story("child")["commit"]) == (main, moved["child"]["after"])

    clone = tmp_path / "clone"
    git(repo, "clone", "-q", str(repo), str(clone))
    git(clone, "merge", "-q", "--no-edit", "origin/autopilot/child")
    assert not (clone / "draft.txt").exists(), "a plain merge by hand"
    assert (clone / "unrelated.txt").read_text() == "second\n"

    second = run(repo, "land", "--style", style, "--json")
    assert sorted(second.data["landed"]) == ["aside", "child", "late"], second.err
    assert second.data["restacked"] == []
    assert files_in(repo, "main") == {"kept.txt", "final.txt", "late.txt", "aside.txt", "unrelated.txt"}
    assert git(repo, "status", "--porcelain") == ""

    write_story(
        repo, "next", command="test ! -e draft.txt; echo next > next.txt", depends_on=["parent", "child"]
    )
    commit_stories(repo)
    later = run(repo, "--json")
    assert later.code == 0, later.err
    assert later.story("next")["base"] == tip_of(repo), "what it depends on is in the base"
    last = run(repo, "land", "--style", style, "--json")
    assert last.data["landed"] == ["next"], "a later run does not make others land twice"
    assert (repo / "unrelated.txt").read_text() == "second\n"


def test_worktrees_follow_if_they_are_clean_and_nothing_else_is_touched(repo: Path, tmp_path: Path) -> None:
    """A dirty worktree, a conflict and a story in the middle of a run leave a branch as it is, named."""
    family(repo, clash="echo mine > kept.txt", rival="echo other > kept.txt", dirty="echo d > d.txt")
    flag, tree, dirty = tmp_path / "flag", tmp_path / "child", tmp_path / "dirty"
    write_story(repo, "busy", command=f"echo busy > busy.txt; touch {flag}; sleep 60", depends_on=["parent"])
    (repo / "other.txt").write_text("other\n")
    commit_stories(repo)
    with started(repo, "busy", "--no-guard") as killed:
        wait_until(flag.exists, what="the story is at work")
        killed.send(signal.SIGKILL)
        killed.finish()
    git(repo, "worktree", "add", "-q", str(tree), "autopilot/child")
    git(repo, "worktree", "add", "-q", str(dirty), "autopilot/dirty")
    (dirty / "mine.txt").write_text("mine\n")
    before = {name: tip_of(repo, f"autopilot/{name}") for name in ("rival", "dirty", "busy")}
    assert run(repo, "land", "parent", "--onto", "release").code == 1
    git(repo, "branch", "release")
    landed = run(repo, "land", "parent", "clash", "--style", "squash", "--onto", "release", "--json")
    assert landed.data["landed"] == ["parent", "clash"], landed.err
    moved = restacks(landed)
    assert {name for name, each in moved.items() if not each["reason"]} == {"child"}
    assert moved["dirty"]["reason"] == f"{dirty} has uncommitted changes: mine.txt"
    assert "is in the middle of run" in str(moved["busy"]["reason"])
    assert moved["rival"]["reason"] == "conflicts with release in kept.txt"
    assert {name: tip_of(repo, f"autopilot/{name}") for name in before} == before
    assert {path.name for path in tree.glob("*.txt")} == {"kept.txt", "final.txt", "other.txt"}
    assert git(tree, "status", "--porcelain") == ""
    assert (dirty / "mine.txt").read_text() == "mine\n"
    said = run(repo, "land", "child", "--onto", "release", "--style", "squash").out
    assert f"not restacked: dirty: {dirty} has uncommitted changes" in said

    (dirty / "mine.txt").unlink()
    assert run(repo, "land", "child", "--onto", "release").code == 0, "nothing lands, but it looks again"
    assert tip_of(repo, "refs/autopilot/old/dirty/1") == before["dirty"]
    assert {path.name for path in dirty.glob("*.txt")} == {"kept.txt", "d.txt", "other.txt", "final.txt"}


@pytest.mark.parametrize("state", ["prepared", "committed"])
def test_a_killed_restack_is_finished_by_the_next_command(repo: Path, tmp_path: Path, state: str) -> None:
    """Killed before or after the branch has moved, with the landing itself complete."""
    family(repo)
    old, tree = tip_of(repo, "autopilot/child"), tmp_path / "child"
    git(repo, "worktree", "add", "-q", str(tree), "autopilot/child")
    hook = repo / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        f'#!/bin/sh\nif [ "$1" = {state} ] && grep -q refs/autopilot/old/child; then\n'
        '  kill -9 $(ps -o ppid= -p $PPID)\n  [ "$1" = committed ] || exit 1\nfi\n'
    )
    hook.chmod(0o755)
    killed = run(repo, "land", "parent", "--style", "squash")
    assert killed.code == -signal.SIGKILL
    hook.unlink()
    assert (repo / "draft.txt").exists(), "the parent has landed"
    assert (tip_of(repo, "autopilot/child") == old) == (state == "prepared")
    if state == "prepared":
        assert "restacked child onto main" in run(repo, "resume").err
        assert "restacked" not in run(repo, "resume").err
    landed = run(repo, "land", "child", "--json")
    assert landed.data["landed"] == ["child"], landed.err
    assert tip_of(repo, "refs/autopilot/old/child/1") == old
    assert git(repo, "for-each-ref", "--format=%(refname)", "refs/autopilot/old").split() == [
        "refs/autopilot/old/child/1"
    ]
    assert git(tree, "status", "--porcelain") == ""
    assert files_in(repo, "main") == {"kept.txt", "final.txt"}


def test_resume_restacks_after_a_landing_that_was_killed(repo: Path) -> None:
    """Killed when the branch had just moved: the landing is complete, and the child follows."""
    family(repo)
    old = tip_of(repo, "autopilot/child")
    hook, flag = repo / ".git" / "hooks" / "reference-transaction", repo / ".git" / "kill-at"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)
    flag.write_text("committed")
    assert run(repo, "land", "parent", "--style", "squash").code == -signal.SIGKILL
    flag.unlink()
    assert tip_of(repo, "autopilot/child") == old
    resumed = run(repo, "resume")
    assert resumed.code == 0, resumed.err
    assert "it is complete now" in resumed.err
    assert "restacked child onto main; its old tip is refs/autopilot/old/child/1" in resumed.err
    assert tip_of(repo, "autopilot/child~1") == tip_of(repo)
    assert tip_of(repo, "refs/autopilot/old/child/1") == old
    assert files_in(repo, "autopilot/child") == {"kept.txt", "final.txt"}


@pytest.mark.parametrize("style", ["squash", "rebase"])
def test_undo_of_a_landing_on_which_a_restacked_story_stands(repo: Path, style: str) -> None:
    """It is reverted by a commit; both stories can land again, and the deleted file stays deleted."""
    family(repo)
    assert run(repo, "land", "parent", "--style", style).code == 0
    restacked = tip_of(repo, "autopilot/child")
    undone = run(repo, "undo", "--yes", "--json")
    assert undone.data["how"] == "revert", undone.err
    assert files_in(repo, "main") == set()
    assert tip_of(repo, "autopilot/child") == restacked
    status = run(repo, "status", "--json")
    assert [status.story(name)["merged"] for name in ("parent", "child")] == [None, None]
    again = run(repo, "land", "--style", style, "--json")
    assert again.data["landed"] == ["parent", "child"], again.data["not_landed"]
    assert files_in(repo, "main") == {"kept.txt", "final.txt"}

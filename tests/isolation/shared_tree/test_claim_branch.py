"""A story's place in the checkout that all share, with real repositories."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from isolation.claims import globs as claims
from isolation.errors import GitCommandError, WorkspaceError
from isolation.git.repository import GitOutput, Repository
from isolation.shared_tree.changes import changed_between
from isolation.shared_tree.claim_branch import open_claim, record_leftovers
from tests.conftest import git
from tests.isolation.shared_tree.trees import PACKAGES, claim, committed, entered, in_the_middle, request


@pytest.fixture
def shared(make_repository: Callable[..., Path]) -> Repository:
    """Return a checkout with three packages, something staged and something untracked of the user's."""
    top = make_repository(files={**PACKAGES, "other.txt": "other\n"})
    (top / "README.md").write_text("staged\n")
    git(top, "add", "README.md")
    (top / "README.md").write_text("staged, and edited again\n")
    (top / "notes.txt").write_text("untracked\n")
    return Repository.open(top)


def _users(top: Path) -> tuple[bytes, str, str, str]:
    """Return what is the user's: index, HEAD, and the files outside all claims."""
    return (
        (top / ".git" / "index").read_bytes(),
        git(top, "rev-parse", "HEAD", "main"),
        git(top, "symbolic-ref", "HEAD"),
        (top / "README.md").read_text() + (top / "notes.txt").read_text(),
    )


def test_commits_hold_the_claim_and_the_checkout_stays_as_it_is(shared: Repository) -> None:
    """Acceptance 20: only paths of the claim are committed; index, HEAD and the user's files stay."""
    before = _users(shared.top)
    workspace = entered(shared)
    (shared.top / "packages/a/x").write_text("changed\n")
    (shared.top / "packages/a/new").write_text("new\n")
    (shared.top / "packages/b/x").write_text("of another story\n")
    made = committed(shared, workspace)
    assert git(shared.top, "show", "--format=", "--name-status", made.tip).split() == [
        *("A", "packages/a/new"),
        *("M", "packages/a/x"),
    ]
    assert git(shared.top, "rev-parse", "autopilot/a", "autopilot/a~1").split() == [made.tip, workspace.base]
    assert (made.commits, made.files) == (1, 2)
    assert _users(shared.top) == before
    status = git(shared.top, "status", "--porcelain", "--", "packages").splitlines()
    assert status == [" M packages/a/x", " M packages/b/x", "?? packages/a/new"]


def test_a_repeated_commit_is_the_same_commit(shared: Repository) -> None:
    """Acceptance 68: an interrupted checkpoint is repeated and gives the same commit, once."""
    workspace = entered(shared)
    (shared.top / "packages/a/x").write_text("changed\n")
    first = committed(shared, workspace)
    again = committed(shared, workspace)
    git(shared.top, "update-ref", "refs/heads/autopilot/a", workspace.head)
    repeated = committed(shared, workspace)
    assert replace(first, among=None) == again
    assert first == repeated


def test_what_a_commit_is_worth_is_known_with_it(shared: Repository) -> None:
    """Conflict markers that it adds are named, also when it is repeated; undone changes are no change."""
    workspace, file = entered(shared), shared.top / "packages/a/x"
    before = file.read_text()
    file.write_text("<<<<<<< ours\n1\n=======\n2\n>>>>>>> theirs\n")
    for _ in range(2):
        made = committed(shared, workspace)
        assert (made.markers, made.unchanged) == (("packages/a/x",), False)
    file.write_text(before)
    made = committed(shared, workspace)
    assert (made.commits, made.markers, made.unchanged) == (2, (), True)


def test_every_kind_of_change_is_committed(shared: Repository) -> None:
    """Deleted, renamed, linked, made executable; a file that became a folder, and the other way round."""
    package = shared.top / "packages/a"
    for name in ("gone", "moved", "run", "file", "folder/inner"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(name)
    git(shared.top, "add", "packages")
    git(shared.top, "commit", "-q", "-m", "more", "--", "packages")
    workspace = entered(shared)
    (package / "gone").unlink()
    (package / "moved").rename(package / "there")
    (package / "link").symlink_to("x")
    (package / "run").chmod(0o755)
    (package / "file").unlink()
    (package / "file").mkdir()
    (package / "file" / "inner").write_text("inner")
    (package / "folder/inner").unlink()
    (package / "folder").rmdir()
    (package / "folder").write_text("a file now")
    (package / "odd \n\udcff name").write_text("odd")
    made = committed(shared, workspace)
    listing = shared.run("ls-tree", "-r", "-z", made.tip, "packages/a/").fields()
    found = {entry.partition("\t")[2]: entry[:6] for entry in listing}
    assert found == {
        "packages/a/x": "100644",
        "packages/a/there": "100644",
        "packages/a/link": "120000",
        "packages/a/run": "100755",
        "packages/a/file/inner": "100644",
        "packages/a/folder": "100644",
        "packages/a/odd \n\udcff name": "100644",
    }


def test_a_folder_that_became_a_link_takes_its_files_with_it(shared: Repository) -> None:
    """What stands behind a link is not the story's: the link is committed, the files are gone."""
    (shared.top / "packages/a/d").mkdir()
    (shared.top / "packages/a/d/y").write_text("y")
    git(shared.top, "add", "packages")
    git(shared.top, "commit", "-q", "-m", "more", "--", "packages")
    workspace = entered(shared)
    (shared.top / "packages/a/d/y").unlink()
    (shared.top / "packages/a/d").rmdir()
    (shared.top / "packages/a/d").symlink_to("../b")
    made = committed(shared, workspace)
    assert git(shared.top, "ls-tree", "-r", "--name-only", made.tip, "packages/a").split() == [
        "packages/a/d",
        "packages/a/x",
    ]


def test_ignored_files_stay_out(shared: Repository) -> None:
    """What git ignores is not committed, also in a claim."""
    (shared.top / ".git" / "info" / "exclude").write_text("*.log\n")
    workspace = entered(shared)
    (shared.top / "packages/a/build.log").write_text("log")
    assert committed(shared, workspace).commits == 0
    assert not git(shared.top, "log", "--format=%h", "main..autopilot/a")


def test_globs_decide_file_by_file(shared: Repository) -> None:
    """A claim is its globs, not the folders around them."""
    own = claims.compile(["packages/*/*.md", "!packages/b/**"])
    workspace = open_claim(shared, request(shared), own, resumed=False)
    for name in ("packages/a/new.md", "packages/a/new.txt", "packages/b/new.md", "packages/c/deep/new.md"):
        (shared.top / name).parent.mkdir(exist_ok=True)
        (shared.top / name).write_text("new")
    made = committed(shared, workspace, own=own)
    assert git(shared.top, "diff", "--name-only", "main", made.tip).split() == ["packages/a/new.md"]


@pytest.mark.parametrize("hide", ["", "--assume-unchanged", "--skip-worktree"])
def test_what_is_not_committed_in_a_claim_refuses_the_story(shared: Repository, hide: str) -> None:
    """A dirty file in the claim is named, also where the user's index hides it; one elsewhere is not."""
    if hide:
        git(shared.top, "update-index", hide, "packages/a/x")
    (shared.top / "packages/a/x").write_text("the user's\n")
    with pytest.raises(WorkspaceError, match=r"1 file in its claim is not committed: packages/a/x") as caught:
        entered(shared)
    assert "stash" in caught.value.hint
    assert not git(shared.top, "branch", "--list", "autopilot/*")
    entered(shared, "b")


def test_a_resumed_story_goes_on_with_what_lies_there(shared: Repository) -> None:
    """After a crash the unfinished work in the claim is the story's own."""
    entered(shared)
    (shared.top / "packages/a/x").write_text("half done\n")
    assert entered(shared, resumed=True).reattached


def test_what_a_story_left_is_told_from_what_others_changed(shared: Repository) -> None:
    """A failed story continues with its own work in a later run; a further edit is not its own."""
    entered(shared)
    (shared.top / "packages/a/x").write_text("half done\n")
    record_leftovers(shared, request(shared), claim("a"))
    assert entered(shared, run="run-2").reattached
    (shared.top / "packages/a/x").write_text("the user's\n")
    with pytest.raises(WorkspaceError, match=r"differs from its branch autopilot/a: packages/a/x"):
        entered(shared, run="run-2")


def test_a_dependant_builds_on_its_dependencies(shared: Repository) -> None:
    """Acceptance 23, 24: the branch starts from the merge of what it depends on, without any checkout."""
    tips = []
    for story in ("a", "b"):
        workspace = entered(shared, story)
        (shared.top / f"packages/{story}/x").write_text("done\n")
        tips.append(committed(shared, workspace, story).tip)
    wanted = request(shared, "c")
    wanted = type(wanted)(
        run_id="run-1", story_id="c", branch=wanted.branch, path=wanted.path, parents=tuple(tips)
    )
    workspace = open_claim(shared, wanted, claim("c"), resumed=False)
    (shared.top / "packages/c/x").write_text("done\n")
    made = committed(shared, workspace, "c")
    assert all(shared.is_ancestor(tip, made.tip) for tip in tips)
    assert shared.changed_paths(workspace.base, made.tip) == ("packages/c/x",)
    assert made.commits == 1


def test_a_tree_without_the_work_of_a_dependency_is_refused(shared: Repository) -> None:
    """Acceptance 23: a story never works on something else than what its commit will be built on."""
    workspace = entered(shared)
    (shared.top / "packages/a/x").write_text("done\n")
    tip = committed(shared, workspace).tip
    git(shared.top, "checkout", "-q", "packages/a/x")
    wanted = request(shared, "b", parent=tip)
    with pytest.raises(WorkspaceError, match=r"lacks what the story depends on: packages/a/x"):
        open_claim(shared, wanted, claim("b"), resumed=False)
    git(shared.top, "restore", "--source", tip, "--", "packages/a/x")
    git(shared.top, "commit", "-q", "-m", "taken over, and more", "--", "packages/a/x")
    assert open_claim(shared, wanted, claim("b"), resumed=False).base == tip


def test_a_branch_that_is_in_the_base_follows_it(shared: Repository) -> None:
    """What the user has merged is behind; the story starts from what is checked out now."""
    entered(shared)
    git(shared.top, "commit", "-q", "--allow-empty", "-m", "later")
    workspace = entered(shared)
    assert workspace.head == workspace.base == shared.resolve("main") == shared.resolve("autopilot/a")


def test_a_branch_in_a_worktree_is_left_alone(shared: Repository, tmp_path: Path) -> None:
    """Moving it would turn that worktree's files into changes."""
    git(shared.top, "worktree", "add", "-q", "-b", "autopilot/a", str(tmp_path / "elsewhere"))
    with pytest.raises(WorkspaceError, match="is checked out at"):
        entered(shared)


def test_a_merge_in_progress_refuses(shared: Repository) -> None:
    """A checkout in the middle of something is not built upon."""
    (shared.top / ".git" / "MERGE_HEAD").write_text(shared.resolve("HEAD") + "\n")
    with pytest.raises(WorkspaceError, match="in the middle of a merge"):
        entered(shared)


def test_files_that_are_not_checked_out_refuse(shared: Repository) -> None:
    """A sparse checkout must not commit as deleted what it leaves out."""
    git(shared.top, "commit", "-q", "-m", "staged")
    git(shared.top, "checkout", "-q", "README.md")
    git(shared.top, "sparse-checkout", "set", "packages/b")
    with pytest.raises(WorkspaceError, match=r"not checked out: packages/a/x"):
        entered(shared)
    entered(shared, "b")


def test_a_repository_inside_the_claim_is_named(shared: Repository) -> None:
    """Git would keep a pointer and lose the content."""
    workspace = entered(shared)
    subprocess.run(["git", "init", "-q", str(shared.top / "packages/a/inner")], check=True)
    (shared.top / "packages/a/inner/file").write_text("x")
    with pytest.raises(WorkspaceError, match=r"other git repositories.*packages/a/inner/"):
        committed(shared, workspace)


def test_a_branch_that_moved_is_never_overwritten(shared: Repository) -> None:
    """The branch moves by compare-and-swap: a commit that is made meanwhile stays."""
    workspace = entered(shared)
    (shared.top / "packages/a/x").write_text("changed\n")
    intruder = git(shared.top, "commit-tree", "-p", "main", "-m", "intruder", "main^{tree}").strip()
    # A filter runs in the middle of the commit.
    (shared.common_dir / "info" / "attributes").write_text("packages/a/x filter=meanwhile\n")

    def move() -> None:
        git(shared.top, "update-ref", "refs/heads/autopilot/a", intruder)

    with in_the_middle(shared.top, "clean", move), pytest.raises(GitCommandError, match="update-ref"):
        committed(shared, workspace)
    assert git(shared.top, "rev-parse", "autopilot/a").strip() == intruder


def test_what_was_looked_at_once_is_not_looked_at_again(
    shared: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a commit are listed once; a story that makes new files then takes no git process."""
    asked: list[str] = []
    run = Repository.run

    def counted(self: Repository, *args: str, **more: Any) -> GitOutput:
        asked.append(args[0].removeprefix("--literal-pathspecs") or args[1])
        return run(self, *args, **more)

    monkeypatch.setattr(Repository, "run", counted)
    for story in ("n1", "n2", "n3"):
        asked.clear()
        workspace = entered(shared, story)
        (shared.top / "packages" / story).mkdir()
        (shared.top / "packages" / story / "new").write_text("new\n")
        made = committed(shared, workspace, story)
        assert (made.commits, made.files, made.among) == (1, 1, (f"packages/{story}/new",))
        assert git(shared.top, "diff", "--name-only", workspace.base, made.tip) == f"packages/{story}/new\n"
    assert asked == ["rev-parse"]  # the test itself resolves HEAD first


def test_what_a_commit_has_changed_is_known_with_it(
    shared: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stories that come later ask about each one before; git is asked only about what is not known."""
    workspace = entered(shared)
    (shared.top / "packages/a/x").write_text("changed\n")
    (shared.top / "packages/a/new").write_text("new\n")
    first = committed(shared, workspace).tip
    (shared.top / "packages/a/new").unlink()
    second = committed(shared, workspace).tip
    asked: list[str] = []
    real = Repository.changed_paths

    def changed_paths(self: Repository, base: str, tip: str) -> tuple[str, ...]:
        asked.append(tip)
        return real(self, base, tip)

    monkeypatch.setattr(Repository, "changed_paths", changed_paths)
    for _ in range(2):
        for tip in (first, second):
            assert changed_between(shared, workspace.base, tip) == real(shared, workspace.base, tip)
    assert asked == [second]


def test_the_branch_of_a_story_is_logged_and_never_made_twice(shared: Repository) -> None:
    """As git does it."""
    workspace = entered(shared)
    log = git(shared.top, "reflog", "show", "--format=%H %gs", workspace.branch)
    assert log.split("\n")[0] == f"{workspace.head} branch: Created from {workspace.head}"
    other = git(shared.top, "commit-tree", "-m", "other", "main^{tree}").strip()
    assert shared.make_branch(workspace.branch, other).returncode != 0
    assert shared.branch_tip(workspace.branch) == workspace.head


def test_no_hook_in_the_files_of_the_checkout_runs_when_a_story_begins(shared: Repository) -> None:
    """It may be another story's: git makes the branch, outside of any confinement."""
    hook, ran = shared.top / "packages/b/reference-transaction", shared.top.parent / "ran"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    git(shared.top, "config", "core.hooksPath", "packages/b")
    entered(shared)
    assert shared.branch_tip("autopilot/a")
    assert not ran.exists()


def test_a_claim_that_changes_in_any_way_is_committed_as_it_is(shared: Repository) -> None:
    """New, changed, deleted, ignored, a folder for a file: git would list the same."""
    top = shared.top
    (top / ".git/info/exclude").write_text("*.log\n")
    workspace = entered(shared)
    own = top / "packages/a"
    (own / "x").unlink()
    (own / "x").mkdir()
    (own / "x/inner").write_text("a folder for a file\n")
    (own / "x.log").write_text("ignored\n")
    (own / "x-after").write_text("sorts between\n")
    (top / "packages/a-sibling").write_text("of nobody\n")
    made = committed(shared, workspace)
    assert git(top, "diff", "--name-status", "--no-renames", workspace.base, made.tip).split() == [
        *("D", "packages/a/x"),
        *("A", "packages/a/x-after"),
        *("A", "packages/a/x/inner"),
    ]
    assert (made.commits, made.files) == (1, 3)


def test_a_file_that_is_not_checked_out_later_is_noticed(shared: Repository) -> None:
    """The answer about files that are left out counts for the index that it was given for."""
    entered(shared, "b")
    git(shared.top, "update-index", "--skip-worktree", "packages/a/x")
    (shared.top / "packages/a/x").unlink()
    with pytest.raises(WorkspaceError, match="not checked out"):
        entered(shared)

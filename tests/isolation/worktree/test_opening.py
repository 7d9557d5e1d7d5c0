"""Worktrees of stories: made, reused, refused, by many processes in parallel."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from isolation.errors import WorkspaceError
from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository
from isolation.model import WorkspaceRequest
from isolation.paths import worktree_root
from isolation.worktree import opening as worktree
from isolation.worktree import removal as closing
from isolation.worktree.checkout_files import require_complete
from tests.conftest import git
from tests.isolation.worktree.worktrees import (
    OPENER,
    branches,
    commit,
    contents,
    git_dir_of,
    hook,
    make,
    wanted,
)


async def test_two_stories_get_distinct_worktrees_and_the_main_checkout_stays(repository: Repository) -> None:
    """Acceptance 9: own trees, branches and indexes; what the user has in the checkout is untouched."""
    (repository.top / "untracked").write_text("mine")
    (repository.top / "README.md").write_text("edited")
    before = contents(repository.top)
    one, two = await make(repository, "one"), await make(repository, "two")
    assert one.path != two.path
    assert {one.branch, two.branch} == {"autopilot/one", "autopilot/two"}
    assert git_dir_of(one.path) != git_dir_of(two.path)
    assert (one.path / "README.md").read_text() == "hello\n"
    assert not one.reattached
    assert contents(repository.top) == before
    reasons = [entry.lock_reason for entry in load_registrations(repository)]
    assert reasons == [None, "autopilot-multi run run-1 story one", "autopilot-multi run run-1 story two"]


async def test_a_worktree_of_a_bare_repository_works(repo: Path, tmp_path: Path) -> None:
    """A bare repository carries stories as well."""
    git(tmp_path, "clone", "-q", "--bare", str(repo), "store.git")
    workspace = await make(Repository.open(tmp_path / "store.git"))
    assert (workspace.path / "README.md").exists()


@pytest.mark.parametrize("story", ["../x", "-rf", "a\nb", ".git", "x" * 300, "a/../../b"])
async def test_ids_that_escape_are_refused_before_any_write(
    repository: Repository, limiter: trio.CapacityLimiter, story: str
) -> None:
    """Acceptance 11: nothing is written, no branch made."""
    root = worktree_root(repository.common_dir)
    request = WorkspaceRequest(
        run_id="run-1",
        story_id=story,
        branch=f"autopilot/{story}",
        path=root / story,
        parents=(repository.resolve("HEAD"),),
    )
    with pytest.raises(WorkspaceError):
        await worktree.create_or_attach(repository, request, limiter)
    assert not root.exists()
    assert branches(repository.top) == {"main"}


@pytest.mark.parametrize(
    "branch", ["-d", "a.lock", "@", "a..b", "refs/heads/x", "x" * 300, "a b", "a\0b", "a\u202eb"]
)
async def test_branches_that_break_the_rules_are_refused(
    repository: Repository, limiter: trio.CapacityLimiter, branch: str
) -> None:
    """Reliability 26: a name that git or a shell would misread is refused."""
    ask = wanted(repository)
    request = WorkspaceRequest(
        run_id=ask.run_id, story_id=ask.story_id, branch=branch, path=ask.path, parents=ask.parents
    )
    with pytest.raises(WorkspaceError, match="cannot name a branch"):
        await worktree.create_or_attach(repository, request, limiter)
    assert branches(repository.top) == {"main"}


async def test_a_root_that_is_a_symlink_is_refused(repository: Repository, tmp_path: Path) -> None:
    """Acceptance 11: a link in place of the root never leads a worktree elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    worktree_root(repository.common_dir).symlink_to(elsewhere)
    with pytest.raises(WorkspaceError, match="symbolic link"):
        await make(repository)
    assert list(elsewhere.iterdir()) == []
    assert branches(repository.top) == {"main"}


async def test_a_path_that_is_a_symlink_is_refused(repository: Repository, tmp_path: Path) -> None:
    """Acceptance 11: nor does a link in place of the story's folder."""
    request = wanted(repository)
    request.path.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    request.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError, match="symbolic link"):
        await make(repository)


@pytest.mark.parametrize("inside", ["repo", "repo/.git", "repo.worktrees/two"])
async def test_a_path_inside_a_checkout_is_refused(
    repository: Repository, limiter: trio.CapacityLimiter, inside: str
) -> None:
    """A worktree inside the checkout, inside `.git`, or inside another story's worktree is refused."""
    ask = wanted(repository)
    await make(repository, "two")
    path = repository.top.parent / inside / "one"
    request = WorkspaceRequest(
        run_id=ask.run_id, story_id="one", branch=ask.branch, path=path, parents=ask.parents
    )
    with pytest.raises(WorkspaceError, match="lies inside"):
        await worktree.create_or_attach(repository, request, limiter)
    assert not [entry for entry in path.parent.iterdir() if entry.name == "one"]


@pytest.mark.parametrize("blocking", ["autopilot", "autopilot/one/more"])
async def test_a_branch_in_the_way_is_named(repository: Repository, blocking: str) -> None:
    """Reliability 26: git cannot have `a` and `a/b`; the error says which one blocks."""
    git(repository.top, "branch", blocking)
    with pytest.raises(WorkspaceError, match=f"while branch {blocking} exists"):
        await make(repository)


async def test_an_unknown_folder_in_the_way_is_never_deleted(repository: Repository) -> None:
    """Something that git does not know stays, and the error names it."""
    request = wanted(repository)
    request.path.mkdir(parents=True)
    (request.path / "precious").write_text("x")
    with pytest.raises(WorkspaceError, match="exists and is not a worktree"):
        await make(repository)
    assert (request.path / "precious").read_text() == "x"
    assert branches(repository.top) == {"main"}


@pytest.mark.parametrize("whose", ["another story's", "another repository's", "a killed creation's"])
async def test_a_folder_with_only_a_foreign_pointer_is_never_emptied(
    repository: Repository, tmp_path: Path, whose: str
) -> None:
    """A tree may have had all its files deleted; and beside a file even a dead pointer is left as it is."""
    request = wanted(repository)
    if whose == "another story's":
        moved = await make(repository, "two")
        (moved.path / "README.md").unlink()
        moved.path.rename(request.path)
    else:
        request.path.mkdir(parents=True)
        git_dir = tmp_path / "theirs" / ".git"
        if whose == "a killed creation's":
            git_dir = repository.common_dir
            (request.path / "precious").touch()
        (request.path / ".git").write_text(f"gitdir: {git_dir}/worktrees/one\n")
    before = (request.path / ".git").read_bytes()
    with pytest.raises(WorkspaceError, match=r"exists and is not a worktree|checked out at"):
        await make(repository)
    assert (request.path / ".git").read_bytes() == before


async def test_an_existing_branch_is_reattached_with_its_commits(repository: Repository) -> None:
    """Acceptance 12: the branch of an earlier run goes on from its tip, also when the base moved."""
    first = await make(repository)
    tip = commit(first.path)
    assert (await closing.close(repository, first)).removed
    commit(repository.top, "meanwhile")
    again = await make(repository, run="run-2")
    assert (again.head, again.base, again.reattached) == (tip, first.base, True)
    assert (again.path / "work").exists()


async def test_a_branch_without_own_commits_starts_from_the_new_base(repository: Repository) -> None:
    """A rerun of a story that had done nothing sees what was fixed meanwhile."""
    first = await make(repository)
    assert (await closing.close(repository, first)).removed
    fixed = commit(repository.top, "fix")
    again = await make(repository, run="run-2")
    assert (again.head, again.base) == (fixed, fixed)
    assert (again.path / "fix").exists()


async def test_a_worktree_that_is_there_is_adopted_with_its_dirt(repository: Repository) -> None:
    """Acceptance 12: uncommitted work of an interrupted run is still there, under the new run's name."""
    first = await make(repository)
    tip = commit(first.path)
    (first.path / "dirty").write_text("unsaved")
    (first.path / "README.md").unlink()
    again = await make(repository, run="run-2")
    assert (again.head, again.base, again.reattached) == (tip, first.base, True)
    assert (again.path / "dirty").read_text() == "unsaved"
    assert not (again.path / "README.md").exists()
    assert load_registrations(repository)[1].run_id == "run-2"


@pytest.mark.parametrize("switch", [("switch", "-q", "-c", "other"), ("checkout", "-q", "--detach")])
async def test_a_worktree_off_its_branch_is_refused(repository: Repository, switch: tuple[str, ...]) -> None:
    """What was done there on another branch, or on none, is not taken for the story's."""
    first = await make(repository)
    git(first.path, *switch)
    with pytest.raises(WorkspaceError, match="not on autopilot/one"):
        await make(repository, run="run-2")


async def test_a_branch_checked_out_elsewhere_is_refused_with_the_place(repository: Repository) -> None:
    """The user has the story's branch in the main checkout: it is named, nothing is made."""
    git(repository.top, "switch", "-q", "-c", "autopilot/one")
    with pytest.raises(WorkspaceError, match=f"is checked out at {repository.top}"):
        await make(repository)
    assert not wanted(repository).path.exists()


async def test_a_deleted_folder_is_made_again(repository: Repository) -> None:
    """A worktree that was deleted by hand is made again on its branch."""
    first = await make(repository)
    tip = commit(first.path)
    shutil.rmtree(first.path)
    again = await make(repository, run="run-2")
    assert (again.head, again.reattached) == (tip, True)
    assert (again.path / "work").exists()


async def test_the_next_checkout_does_not_wait_until_one_is_verified(
    repository: Repository, limiter: trio.CapacityLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place is for git's own work: with one, the second story has its files before the first is through."""
    second = threading.Event()

    def slow(repository: Repository, path: Path, **more: Any) -> None:
        if path.name == "one":
            assert second.wait(30)
        require_complete(repository, path, **more)

    monkeypatch.setattr("isolation.worktree.opening.require_complete", slow)
    limiter.total_tokens = 1

    async def next_one() -> None:
        await worktree.create_or_attach(repository, wanted(repository, "two"), limiter)
        second.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worktree.create_or_attach, repository, wanted(repository, "one"), limiter)
            nursery.start_soon(next_one)
    assert limiter.borrowed_tokens == 0


async def test_several_parents_give_their_merge(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """Acceptance 23, 24: a dependant starts with the commits of all it depends on."""
    tips = [commit((await make(repository, story)).path, story) for story in ("a", "b")]
    ask = wanted(repository, "both")
    request = WorkspaceRequest(
        run_id=ask.run_id, story_id="both", branch=ask.branch, path=ask.path, parents=tuple(tips)
    )
    workspace = await worktree.create_or_attach(repository, request, limiter)
    assert all(repository.is_ancestor(tip, workspace.base) for tip in tips)
    assert {path.name for path in workspace.path.iterdir()} == {".git", "README.md", "a", "b"}


async def test_a_failing_hook_with_a_complete_tree_is_fine(repository: Repository, tmp_path: Path) -> None:
    """Git fails because of the hook, but every file is there; the hook did run."""
    hook(repository.top, f"echo ran > {tmp_path}/ran; exit 3")
    workspace = await make(repository)
    assert (workspace.path / "README.md").exists()
    assert (tmp_path / "ran").exists()


def crowd(repository: Repository, round_number: int, *, processes: int = 3, each: int = 8) -> None:
    """Let several processes make several worktrees each in parallel, and check every one of them."""
    stories = [
        [f"r{round_number}p{process}s{number}" for number in range(each)] for process in range(processes)
    ]
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, str(repository.top), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for names in stories
    ]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("\n")
        opener.stdin.flush()
    for opener in openers:
        out, err = opener.communicate(timeout=120)
        assert opener.returncode == 0, err
        assert len(out.splitlines()) == each
    wanted_names = {f"autopilot/{name}" for names in stories for name in names}
    made = {entry.branch for entry in load_registrations(repository)[1:]}
    assert wanted_names <= made
    assert branches(repository.top) == made | {"main"}


def test_24_worktrees_at_once_from_3_processes(repository: Repository) -> None:
    """Acceptance 15: 24 of 24, no stray branch."""
    crowd(repository, 0)


def test_registration_goes_one_at_a_time_across_processes(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance 15: no two `git worktree add` ever run at the same time, in any process."""
    busy, overlaps = tmp_path / "busy", tmp_path / "overlaps"
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\ncase "$*" in *"worktree add"*) ;; *) exec /usr/bin/git "$@";; esac\n'
        f"mkdir {busy} || echo overlap >> {overlaps}\n"
        f'sleep 0.05; /usr/bin/git "$@"; code=$?; rmdir {busy}; exit $code\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    crowd(repository, 0, processes=2, each=3)
    assert not overlaps.exists()


@pytest.mark.chaos
def test_24_worktrees_at_once_ten_times(repository: Repository) -> None:
    """Acceptance 15, repeated: 240 of 240."""
    for number in range(10):
        crowd(repository, number)

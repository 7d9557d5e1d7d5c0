"""Worktrees whose creation was killed, failed or undone: removed, completed, or left to the user."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from isolation.errors import WorkspaceError
from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository
from isolation.paths import worktree_root
from isolation.worktree import opening as worktree
from isolation.worktree import removal as closing
from tests.conftest import git
from tests.isolation.worktree.worktrees import branches, commit, git_dir_of, hook, make, wanted


async def test_a_tree_that_cannot_be_filled_is_rolled_back(make_repository: Callable[..., Path]) -> None:
    """A filter that fails for one file leaves no worktree, no branch, no folder."""
    attributes = {".gitattributes": "*.bin filter=broken\n", "a.bin": "x", "b.txt": "x"}
    repository = Repository.open(make_repository(files=attributes))
    git(repository.top, "config", "filter.broken.smudge", "exit 1")
    git(repository.top, "config", "filter.broken.required", "true")
    with pytest.raises(WorkspaceError, match=r"a\.bin"):
        await make(repository)
    assert branches(repository.top) == {"main"}
    assert len(load_registrations(repository)) == 1
    assert not worktree_root(repository.common_dir).exists()


@pytest.mark.parametrize("leave", ["echo precious > notes", "ln -s .git notes", "ln -s / notes"])
async def test_a_rollback_spares_what_checkout_did_not_put_there(
    make_repository: Callable[..., Path], leave: str
) -> None:
    """Files and links of a hook are not git's: the folder stays, and so does the branch it needs."""
    attributes = {".gitattributes": "*.bin filter=broken\n", "a.bin": "x"}
    repository = Repository.open(make_repository(files=attributes))
    git(repository.top, "config", "filter.broken.smudge", "exit 1")
    git(repository.top, "config", "filter.broken.required", "true")
    hook(repository.top, f"rm -f README.md; {leave}")
    git(repository.top, "config", "--unset", "filter.broken.required")
    with pytest.raises(WorkspaceError, match=r"README\.md"):
        await make(repository)
    assert [entry for entry in wanted(repository).path.iterdir() if entry.name == "notes"]
    assert branches(repository.top) == {"main", "autopilot/one"}


async def test_a_rollback_leaves_a_branch_that_moved(repository: Repository) -> None:
    """Commits that a hook made on the new branch are not deleted with it."""
    hook(repository.top, "git commit -q --allow-empty -m moved")
    with pytest.raises(WorkspaceError, match="not at"):
        await make(repository)
    assert branches(repository.top) == {"main", "autopilot/one"}


async def test_a_failed_reattach_keeps_the_branch(make_repository: Callable[..., Path]) -> None:
    """Only what this call made is taken back; an existing branch never is."""
    files = {".gitattributes": "*.bin filter=broken\n", "a.bin": "x"}
    repository = Repository.open(make_repository(files=files))
    git(repository.top, "branch", "autopilot/one")
    git(repository.top, "config", "filter.broken.smudge", "exit 1")
    git(repository.top, "config", "filter.broken.required", "true")
    with pytest.raises(WorkspaceError):
        await make(repository)
    assert branches(repository.top) == {"main", "autopilot/one"}
    assert len(load_registrations(repository)) == 1


async def test_cancelled_while_filling_it_is_rolled_back(repository: Repository, tmp_path: Path) -> None:
    """Cancellation waits for git, then takes all of it back."""
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    hook(repository.top, f"echo begun > {begun}; cat {go_on}")
    with trio.fail_after(30), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make, repository)
            await trio.to_thread.run_sync(begun.read_text)
            scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(go_on.write_text, "go on")
    assert scope.cancelled_caught
    assert branches(repository.top) == {"main"}
    assert len(load_registrations(repository)) == 1
    assert not worktree_root(repository.common_dir).exists()


@pytest.fixture
def failing(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the next `worktree add` fail as git's own race does; once it has, there is a file `failed`.

    The repository is one in which entries are left to git.
    """
    git(repository.top, "config", "extensions.worktreeConfig", "true")
    failed, fake = tmp_path / "failed", tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *"worktree add"*) if [ ! -e {failed} ]; then\n'
        f"touch {failed}; /usr/bin/git -C {repository.top} branch autopilot/one 2> /dev/null\n"
        "echo 'fatal: failed to read .git/worktrees/one/commondir: Success' >&2; exit 128; fi;; esac\n"
        'exec /usr/bin/git "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    return tmp_path


async def test_a_passing_failure_of_worktree_add_is_tried_again(
    repository: Repository, failing: Path
) -> None:
    """The known race of git's own, which leaves the new branch behind, costs nothing but a retry."""
    workspace = await make(repository)
    assert (failing / "failed").exists()
    assert (workspace.path / "README.md").exists()


@pytest.mark.parametrize("own", [False, True])
async def test_after_a_passing_failure_only_a_branch_of_this_calls_is_taken_back(
    repository: Repository, failing: Path, *, own: bool
) -> None:
    """The branch that the failed attempt left goes with the tree; one that had commits before stays."""
    if own:
        workspace = await make(repository)
        tip = commit(workspace.path)
        assert (await closing.close(repository, workspace)).removed
        (failing / "failed").unlink()
    hook(repository.top, "rm -f README.md")
    with pytest.raises(WorkspaceError, match=r"README\.md"):
        await make(repository)
    assert (failing / "failed").exists()
    assert repository.branch_tip("autopilot/one") == (tip if own else None)


async def test_a_registration_that_never_had_a_head_is_made_again(repository: Repository) -> None:
    """Acceptance 68: killed within `git worktree add`; it can hold no work, and is not in anybody's way."""
    request = wanted(repository)
    add = ("worktree", "add", "-q", "--no-checkout", "--detach", str(request.path))
    git(repository.top, *add)
    (git_dir_of(request.path) / "HEAD").write_text("0" * 40 + "\n")
    workspace = await make(repository)
    assert not workspace.reattached
    assert git(workspace.path, "status", "--porcelain", "--branch") == "## autopilot/one\n"


async def test_a_tree_that_was_never_filled_is_filled_without_being_told(repository: Repository) -> None:
    """Acceptance 68: killed between registration and checkout; it is known by its lack of an index."""
    request = wanted(repository)
    add = ("worktree", "add", "-q", "--no-checkout", "--no-track", "-b", request.branch, str(request.path))
    git(repository.top, *add)
    workspace = await make(repository)
    assert workspace.reattached
    assert git(workspace.path, "status", "--porcelain") == ""
    assert (workspace.path / "README.md").read_text() == "hello\n"


async def test_a_folder_that_lost_its_way_back_is_not_taken_for_a_worktree(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """Without its `.git` file a folder is refused, left as it is, and the way out is named."""
    workspace = await make(repository, "one")
    (workspace.path / ".git").unlink()
    with pytest.raises(WorkspaceError, match="no longer connected to the repository") as refused:
        await worktree.create_or_attach(repository, wanted(repository, "one"), limiter)
    assert "git worktree repair" in refused.value.hint
    git(repository.top, "worktree", "repair")
    assert (await make(repository, "one")).reattached

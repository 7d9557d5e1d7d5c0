"""The one entrance: what stays and what goes when a story leaves its workspace."""

import shutil

import pytest
import trio
import trio.testing

from isolation.errors import WorkspaceError
from isolation.git.repository import Repository
from isolation.workspace import open_workspace
from tests.conftest import git
from tests.isolation.worktree.worktrees import branches, wanted


async def test_an_unfinished_story_keeps_its_workspace(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """Only a body that says so lets the tree go."""
    async with open_workspace(repository, wanted(repository), limiter=limiter) as opened:
        path = opened.workspace.path
    assert opened.closing is not None
    assert (opened.closing.removed, opened.closing.reason) == (False, "story not finished")
    assert path.exists()
    async with open_workspace(repository, wanted(repository), limiter=limiter) as opened:
        opened.finished = True
    assert opened.closing is not None
    assert opened.closing.removed
    assert not path.exists()


async def test_a_story_that_breaks_keeps_its_workspace(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """After an error the tree stays, whatever the body had said before."""

    async def breaks() -> None:
        async with open_workspace(repository, wanted(repository), limiter=limiter) as opened:
            await opened.begin()
            opened.finished = True
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await breaks()
    assert wanted(repository).path.exists()


async def test_a_bad_setting_is_refused_before_anything_is_made(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """Acceptance 11: a shared directory that leads out of the checkout costs no worktree."""

    async def opens() -> None:
        outside = ("../elsewhere",)
        async with open_workspace(
            repository, wanted(repository), limiter=limiter, symlink_directories=outside
        ):
            pass

    with pytest.raises(WorkspaceError, match="symlink-directories"):
        await opens()
    assert not wanted(repository).path.exists()
    assert branches(repository.top) == {"main"}


async def test_what_was_prepared_and_never_begun_is_undone(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """Tree, registration and branch are gone; the tree was whole while its story waited for a slot."""
    request, seen = wanted(repository), []
    before = branches(repository.top)
    with trio.CancelScope() as scope:
        async with open_workspace(repository, request, limiter=limiter):
            seen.append((sorted(path.name for path in request.path.iterdir()), branches(repository.top)))
            scope.cancel()
            await trio.sleep_forever()
    assert seen == [([".git", "README.md"], {*before, request.branch})]
    assert branches(repository.top) == before
    assert not request.path.exists()
    assert not any((repository.common_dir / "worktrees").glob("*"))


async def test_what_existed_before_stays_when_the_story_never_begins(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """A branch of an earlier run keeps its commits, and a worktree with work in it stays as it is."""
    request = wanted(repository)
    async with open_workspace(repository, request, limiter=limiter) as opened:
        (opened.workspace.path / "dirt").write_text("mine")
    with trio.CancelScope() as scope:
        async with open_workspace(repository, request, limiter=limiter):
            scope.cancel()
            await trio.sleep_forever()
    assert (request.path / "dirt").read_text() == "mine"
    assert request.branch in branches(repository.top)


async def test_a_tree_that_vanished_before_its_story_began_is_made_again(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """Somebody deletes a tree that was made ahead; its story still begins in a whole one."""
    (repository.top / ".gitignore").write_text(".env\n")
    (repository.top / ".env").write_text("secret")
    (repository.top / ".worktreeinclude").write_text(".env\n")
    git(repository.top, "add", ".gitignore")
    git(repository.top, "commit", "--quiet", "-m", "ignore")
    request = wanted(repository)
    async with open_workspace(repository, request, limiter=limiter) as opened:
        await trio.to_thread.run_sync(shutil.rmtree, request.path)
        path = (await opened.begin()).path
        assert (path / "README.md").read_text() == "hello\n"
        assert (path / ".env").read_text() == "secret"
        assert git(path, "branch", "--show-current").strip() == request.branch


async def test_stories_that_wait_for_their_files_start_before_one_that_ended_is_removed(
    repository: Repository,
) -> None:
    """A worktree is closed behind the checkouts that were asked for before, and not behind later ones."""
    limiter, order = trio.CapacityLimiter(1), list[str]()
    release, waiting = trio.Event(), trio.Event()

    async def check_out(name: str) -> None:
        async with limiter:
            await release.wait()
            order.append(name)

    async def end() -> None:
        async with open_workspace(repository, wanted(repository), limiter=limiter) as opened:
            opened.finished = True
            nursery.start_soon(check_out, "earlier")
            await trio.testing.wait_all_tasks_blocked()
            waiting.set()
        order.append("closed")

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            await waiting.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert wanted(repository).path.exists()
            release.set()
    assert order == ["earlier", "closed"]

"""A worktree counts as filled only when every file is whole."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from isolation.errors import WorkspaceError
from isolation.git.repository import Repository
from isolation.worktree import checkout_files as population
from isolation.worktree.opening import create_or_attach
from tests.conftest import git
from tests.isolation.worktree.worktrees import branches, commit, git_dir_of, hook, make, wanted


async def test_a_file_that_a_full_disk_cut_off_is_not_taken_for_whole(repository: Repository) -> None:
    """Acceptance 72: a checkout that failed and left a file short is taken back, never worked in.

    The hook leaves what a disk that ran full leaves: a short file that the index has as whole.
    """
    commit(repository.top, "big", "0123456789" * 1000)
    hook(repository.top, "printf 01234 > big; exit 1")
    with pytest.raises(WorkspaceError, match="big missing or truncated"):
        await make(repository, "one")
    assert branches(repository.top) == {"main"}


async def test_a_failing_hook_alone_is_no_reason_to_refuse_a_tree(repository: Repository) -> None:
    """What a hook changes in the files, or a difference in line endings, is not a partial write."""
    commit(repository.top, "page", "one\n")
    (repository.top / ".gitattributes").write_text("page text eol=crlf\n")
    git(repository.top, "config", "core.autocrlf", "true")
    commit(repository.top, "other", "two\n")
    hook(repository.top, "printf 'another page' > page; exit 1")
    workspace = await make(repository, "one")
    assert (workspace.path / "page").read_text() == "another page"


WHOLE = "0123456789" * 1000


async def _cut_short(repository: Repository, *, index: bool = False) -> Path:
    """Return a worktree as a kill during its first checkout leaves it: no README, an index only if asked."""
    commit(repository.top, "big", WHOLE)
    workspace = await make(repository)
    (workspace.path / "README.md").unlink()
    if not index:
        (git_dir_of(workspace.path) / "index").unlink()
    return workspace.path


@pytest.mark.parametrize("index", [False, True])
async def test_a_checkout_that_was_killed_is_completed(repository: Repository, *, index: bool) -> None:
    """Acceptance 68: what is missing is checked out, and a half-written file is written again."""
    tree = await _cut_short(repository, index=index)
    (tree / "big").write_text(WHOLE[:1234])
    await make(repository, interrupted=True)
    assert (tree / "big").read_text() == WHOLE
    assert git(tree, "status", "--porcelain") == ""


def _edit(file: Path) -> None:
    file.write_text("somebody's own words")


def _lengthen(file: Path) -> None:
    file.write_text(WHOLE + "and more")


def _link(file: Path) -> None:
    (file.parent.parent / "beginning").write_text(WHOLE[:5])
    file.unlink()
    file.symlink_to("../beginning")


@pytest.mark.parametrize("change", [_edit, _lengthen, _link])
async def test_a_changed_file_is_not_overwritten_by_the_checkout(
    repository: Repository, change: Callable[[Path], None]
) -> None:
    """Acceptance 68: only the beginning of what belongs there is a partial write; anything else is work."""
    tree = await _cut_short(repository)
    change(tree / "big")
    before = (tree / "big").read_bytes(), (tree / "big").is_symlink()
    await make(repository, interrupted=True)
    assert ((tree / "big").read_bytes(), (tree / "big").is_symlink()) == before
    assert (tree / "README.md").read_text() == "hello\n"


async def test_the_lock_of_a_killed_checkout_is_cleared(repository: Repository) -> None:
    """No process is in the tree and no index was ever written: the lock is stale."""
    tree = await _cut_short(repository)
    (git_dir_of(tree) / "index.lock").touch()
    await make(repository, interrupted=True)
    assert git(tree, "status", "--porcelain") == ""


@pytest.mark.parametrize("index", [False, True])
async def test_a_lock_that_may_be_anothers_is_never_cleared(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, *, index: bool
) -> None:
    """A process lives in the tree, or git has worked there since: the lock is waited for, then named."""
    monkeypatch.setattr(population, "_LOCK_PATIENCE", 0.2)
    monkeypatch.setattr(population, "_ORPHAN_PATIENCE", 0.2)
    tree = await _cut_short(repository, index=index)
    lock = git_dir_of(tree) / "index.lock"
    lock.touch()
    cat = shutil.which("cat")
    assert cat
    lives = subprocess.Popen([cat], stdin=subprocess.PIPE, cwd="/" if index else tree)  # noqa: ASYNC220  until told
    with lives, pytest.raises(WorkspaceError, match="seems to be running"):
        await make(repository, interrupted=True)
    assert lock.exists()
    lock.unlink()
    await make(repository, interrupted=True)
    assert (tree / "README.md").exists()


async def test_a_checkout_waits_for_the_lock_of_another(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git command that runs in the tree is waited for."""
    tree = await _cut_short(repository)
    lock = git_dir_of(tree) / "index.lock"
    lock.touch()
    monkeypatch.setattr("isolation.git.commits.time.sleep", lambda _seconds: lock.unlink())
    assert population.populate(repository, tree, "autopilot/one").returncode == 0
    assert (tree / "README.md").exists()


async def test_what_can_wait_waits_for_the_trees_that_are_being_made(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A tree counts until it is verified, though its place is free before; one that comes later does not."""
    assert autojump_clock is not None
    limiter, ended = trio.CapacityLimiter(2), list[str]()

    async def make(name: str, seconds: float) -> None:
        async with population.asking(limiter):
            await trio.sleep(seconds)
        ended.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(make, "before", 1)
        await trio.sleep(0.5)

        async def come_later() -> None:
            await trio.sleep(0.1)
            await make("later", 2)

        nursery.start_soon(come_later)
        await population.after_checkouts(limiter)
        assert ended == ["before"]
        nursery.start_soon(make, "hanging", 60)
        await trio.sleep(2)
        with trio.fail_after(population.PATIENCE_SECONDS + 1):
            await population.after_checkouts(limiter)
        assert "hanging" not in ended


async def test_a_checkout_uses_all_processors_only_if_no_other_waits(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several at once use them anyway, and each would take more of their time."""
    for number in range(120):  # from a hundred on git shares them out
        (repository.top / f"f{number}").write_text("x")
    git(repository.top, "add", "-A")
    git(repository.top, "commit", "-q", "-m", "many")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("GIT_TRACE2", str(trace := tmp_path / "trace"))
    limiter = trio.CapacityLimiter(2)
    await create_or_attach(repository, wanted(repository, "alone"), limiter)
    assert "checkout--worker" in trace.read_text()
    trace.unlink()
    async with population.asking(limiter):
        await create_or_attach(repository, wanted(repository, "one-of-two"), limiter)
    assert "checkout--worker" not in trace.read_text()

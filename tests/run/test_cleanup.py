"""Trash of finished worktrees: emptied, and never a silent wait."""

import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from isolation.files.deletion import delete_tree
from isolation.git.repository import Repository
from isolation.paths import worktree_root
from runner.run import cleanup as tidying


def test_a_long_deletion_says_what_the_run_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk is reported once; here the deletion ends only after that."""
    said: list[str] = []
    heard = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        heard.set()

    (tmp_path / ".trash").mkdir()
    monkeypatch.setattr(tidying, "sweep_trash", lambda _root: heard.wait(30))
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(tidying.sweep, tmp_path, say, clock=clock)
    assert len(said) == 1
    assert "deleting the worktrees" in said[0]


def test_a_quick_deletion_says_nothing(tmp_path: Path) -> None:
    """Where the trash is gone before any time has passed there is nothing to tell."""
    root = tmp_path / "trees"
    (root / ".trash" / "one-1").mkdir(parents=True)
    said: list[str] = []
    trio.run(tidying.sweep, root, said.append, clock=trio.testing.MockClock())
    assert not said
    assert not root.exists()


def fill_trash(repository: Repository, count: int) -> Path:
    """Make trees, and one entry of git's list, that killed processes have left in the trash."""
    root = worktree_root(repository.common_dir)
    for number in range(count):
        (root / ".trash" / f"_land-{number}" / "folder").mkdir(parents=True)
    (repository.common_dir / "autopilot" / "trash" / "_land-1").mkdir(parents=True)
    return root


def test_trash_is_deleted_beside_other_work(repo: Path) -> None:
    """What killed processes have left goes while something else is at work, and what comes meanwhile."""
    repository = Repository.open(repo)
    root = fill_trash(repository, 3)

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tidying.keep_sweeping, repository, root)
            await emptied()
            (root / ".trash" / "_land-new").mkdir()
            await emptied()
            nursery.cancel_scope.cancel()

    async def emptied() -> None:
        while list((root / ".trash").iterdir()):  # noqa: ASYNC110  nothing announces a deletion
            await trio.sleep(tidying.PAUSE_SECONDS)

    trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0.01))
    assert not list((repository.common_dir / "autopilot" / "trash").iterdir())


def test_a_brief_sweep_leaves_the_rest_for_the_next(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much trash there is, the lease is not held for long."""
    repository = Repository.open(repo)
    root = fill_trash(repository, 9)
    clock = trio.testing.MockClock()

    def slowly(tree: Path) -> None:
        delete_tree(tree)
        trio.from_thread.run_sync(clock.jump, 1)

    monkeypatch.setattr(tidying, "delete_tree", slowly)
    trio.run(tidying.sweep_briefly, repository, root, clock=clock)
    assert len(list((root / ".trash").iterdir())) == 4
    trio.run(tidying.sweep_briefly, repository, root, clock=trio.testing.MockClock())
    assert not root.exists()

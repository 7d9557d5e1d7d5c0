"""Spares that were looked at while the program loaded, and spares that are not made in vain."""

import os
import time
from pathlib import Path

import pytest
import trio

from isolation.files import lease
from isolation.git.direct.index_file import summarize, touched
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir
from isolation.worktree.pool import ahead
from isolation.worktree.pool import pool as pool_module
from isolation.worktree.pool.making import make_spare
from isolation.worktree.pool.seals import count_seals, load_seals
from tests.conftest import git
from tests.isolation.worktree.pool.behavior import Stories, fill
from tests.isolation.worktree.worktrees import git_dir_of


@pytest.fixture
def stories(repo: Path) -> Stories:
    """Return stories with two spares of an earlier run, whose lease ended a while ago."""
    fill(repo)
    found = Stories(repo)
    for _ in range(2):
        base = found.repository.resolve("main")
        assert make_spare(found.repository, found.root, base, "run-1", guarded=True) == ""
    lease.acquire(found.repository.common_dir, "run-1").release()
    long_ago = time.time_ns() - 10**10
    os.utime(autopilot_dir(found.repository.common_dir), ns=(long_ago, long_ago))
    return found


def look(stories: Stories) -> None:
    """Look ahead, and wait for the end of it."""
    ahead.look_ahead(stories.repository, stories.repository.resolve("main"), 2)
    for seal in load_seals(stories.repository.common_dir):
        ahead.was_looked_at(stories.repository, seal)


def begin_run(stories: Stories) -> None:
    """Have the lease for a moment, as a run that begins."""
    common = stories.repository.common_dir
    with lease.acquire(common, "run-2") as held:
        ahead.drop_stale(common, held.changed)


def change(stories: Stories) -> None:
    """Write to every spare."""
    for seal in load_seals(stories.repository.common_dir):
        Path(seal.path, "src", "f1.py").write_text("changed\n")


def forbid_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_again(*_: object, **__: object) -> bool:
        raise AssertionError("it was looked at again")

    monkeypatch.setattr(pool_module, "is_unchanged", look_again)


async def test_a_story_does_not_wait_for_a_look_that_was_taken(
    stories: Stories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both spares are claimed without another look, and are fresh."""
    look(stories)
    begin_run(stories)
    forbid_looks(monkeypatch)
    for _ in range(2):
        stories.require_fresh(await stories.open(stories.pool("run-2")))
    assert stories.recycled == 2


async def test_what_was_changed_before_the_look_is_not_used(stories: Stories) -> None:
    """A spare in which somebody wrote is removed, and the story gets a fresh worktree."""
    change(stories)
    look(stories)
    begin_run(stories)
    stories.require_fresh(await stories.open(stories.pool("run-2")))
    assert count_seals(stories.repository.common_dir) == 0


async def test_a_run_in_between_makes_a_look_worthless(stories: Stories) -> None:
    """What another run may have changed since is looked at again."""
    look(stories)
    lease.acquire(stories.repository.common_dir, "run-other").release()
    change(stories)
    begin_run(stories)
    stories.require_fresh(await stories.open(stories.pool("run-2")))


async def test_without_a_guard_every_look_is_taken_at_the_claim(stories: Stories) -> None:
    """Neither a run without a write guard nor an active one of others lets a look ahead count."""
    look(stories)
    begin_run(stories)
    change(stories)
    stories.require_fresh(await stories.open(stories.pool("run-2", guarded=False)))


def test_nothing_is_looked_at_while_another_run_is_active(stories: Stories) -> None:
    """Its spares are its own."""
    (first, _) = load_seals(stories.repository.common_dir)
    with lease.acquire(stories.repository.common_dir, "run-other"):
        look(stories)
    assert not ahead.was_looked_at(stories.repository, first)


async def test_no_spare_is_made_while_a_tree_may_come_back(
    stories: Stories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A story that has ended still has its tree for a moment; a spare is made only once none comes back."""
    monkeypatch.setattr(pool_module, "PAUSE_SECONDS", 0.01)
    common, pool = stories.repository.common_dir, stories.pool("run-2")
    pool.size = 3
    base = stories.repository.resolve("main")
    turns, looked, lent = 0, trio.Event(), list[int]()

    def make(repository: Repository, root: Path, commit: str, run_id: str, *, guarded: bool) -> str:
        lent.append(pool._lent)
        return make_spare(repository, root, commit, run_id, guarded=guarded)

    monkeypatch.setattr(pool_module, "make_spare", make)

    def running() -> int:
        nonlocal turns
        turns += 1
        if turns == 20:
            looked.set()
        return 0

    async with trio.open_nursery() as nursery:
        with pool.lending():
            nursery.start_soon(pool.keep, lambda: base, running)
            await looked.wait()
        with trio.fail_after(30):
            while count_seals(common) < 3:  # noqa: ASYNC110  the pool tells nobody
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert lent == [0]


def test_recent_entries_of_an_index_are_found_by_their_positions(stories: Stories) -> None:
    """A changed file is found among those that a summary has named, in every version that can name them."""
    top = stories.repository.top
    index = git_dir_of(top) / "index"
    for version in ("2", "3", "4"):
        if version == "3":
            git(top, "update-index", "--skip-worktree", "run.sh")
        git(top, "update-index", "--index-version", version)
        git(top, "update-index", "--refresh")
        for name in ("src/f1.py", "run.sh"):  # from version 3 on the second has more flags before its name
            (top / name).touch()
        os.utime(index, ns=(0, 0))  # every entry is newer than that
        recent = summarize(index).recent
        assert (recent is None) == (version == "4")
        assert touched(index, top, recent=recent) == touched(index, top)
        assert len(touched(index, top)) == 2
    os.utime(index, (time.time() + 9, time.time() + 9))
    git(top, "update-index", "--index-version", "2")
    os.utime(index, (time.time() + 9, time.time() + 9))
    assert summarize(index).recent == ()
    assert touched(index, top, recent=()) == ()

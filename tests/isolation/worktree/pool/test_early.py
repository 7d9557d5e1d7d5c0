"""A tree that was begun before the run: it is a story's like any other, or nothing is left of it."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from isolation.files import lease
from isolation.git.repository import Repository
from isolation.worktree.opening import create_undoable
from isolation.worktree.pool import early
from isolation.worktree.pool.making import make_spare
from isolation.worktree.removal import discard
from tests.conftest import git
from tests.isolation.worktree.pool.behavior import Stories, fill

KILLED = """
import os, sys
from pathlib import Path
from isolation.git.repository import Repository
from isolation.paths import worktree_root
from isolation.worktree.pool import early

repository = Repository.open(Path(sys.argv[1]))
early.check_out_early(repository, worktree_root(repository.common_dir), repository.resolve("main"))
tree = early.early_tree(repository.common_dir)
if sys.argv[2] == "filled":
    tree.filled.wait()
else:
    while not tree.path.exists():
        pass
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def stories(repo: Path) -> Stories:
    """Return stories without any spare."""
    fill(repo)
    return Stories(repo)


def begin(stories: Stories) -> early.EarlyTree:
    """Begin a tree at the base, and wait for git."""
    early.check_out_early(stories.repository, stories.root, stories.repository.resolve("main"))
    tree = early.early_tree(stories.repository.common_dir)
    assert tree is not None
    assert tree.filled.wait(30)
    return tree


def require_nothing_left(repository: Repository, root: Path) -> None:
    """Fail if a worktree is registered, or its folder is there."""
    assert not (repository.common_dir / "worktrees").exists()
    assert not root.exists()


async def test_the_first_story_gets_the_tree_that_was_begun(stories: Stories) -> None:
    """It is byte by byte what a new worktree is; the next story makes its own."""
    tree, pool = begin(stories), stories.pool("run-1")
    pool.begin()
    first, second = await stories.open(pool), await stories.open(pool)
    for workspace in (first, second):
        stories.require_fresh(workspace)
    assert Path((first.path / ".git").read_text().strip()).name == tree.path.name
    assert Path((second.path / ".git").read_text().strip()).name == "s2"


async def test_the_tree_of_its_story_is_recycled(stories: Stories) -> None:
    """How it began is known, so it becomes a spare, which the next story gets."""
    begin(stories)
    pool = stories.pool("run-1")
    assert await stories.end(pool, await stories.open(pool))
    stories.require_fresh(await stories.open(pool))
    assert stories.recycled == 1


async def test_its_files_need_not_be_on_the_disk_when_the_story_begins(stories: Stories) -> None:
    """Until they are, the entry says so, as that of any new worktree."""
    begin(stories)
    pool, limiter = stories.pool("run-1"), trio.CapacityLimiter(2)
    workspace, _ = await create_undoable(stories.repository, stories.request(pool), limiter, pool=pool)
    assert workspace.unsettled is not None
    assert workspace.unsettled.exists()


async def test_a_story_at_another_commit_makes_its_own(stories: Stories) -> None:
    """The tree that no story could use is removed with all that is known about it."""
    tree, pool = begin(stories), stories.pool("run-1")
    git(stories.repository.top, "commit", "-q", "--allow-empty", "-m", "newer")
    pool.begin()
    stories.require_fresh(await stories.open(pool))
    await pool.finish(stories.repository.resolve("main"))
    assert not tree.path.exists()
    assert [each.name for each in (stories.repository.common_dir / "worktrees").iterdir()] == ["s1"]


async def test_a_tree_that_somebody_removed_is_made_again(stories: Stories) -> None:
    """Another run that got the repository in between sweeps it as half made."""
    tree, pool = begin(stories), stories.pool("run-1")
    discard(stories.repository, tree.path)
    stories.require_fresh(await stories.open(pool))


async def test_without_a_guard_none_is_used(stories: Stories) -> None:
    """What another session could have written to is removed before any begins."""
    tree, pool = begin(stories), stories.pool("run-1", guarded=False)
    pool.begin()
    assert not tree.path.exists()
    stories.require_fresh(await stories.open(pool))


async def test_a_hook_that_came_since_sees_the_checkout(stories: Stories, tmp_path: Path) -> None:
    """It runs for the story, as it does for a new worktree."""
    begin(stories)
    seen, hook = tmp_path / "seen", stories.repository.common_dir / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\npwd >> {seen}\n")
    hook.chmod(0o755)
    workspace = await stories.open(stories.pool("run-1"))
    assert seen.read_text().split() == [str(workspace.path)]


def test_a_run_that_is_refused_leaves_nothing(stories: Stories) -> None:
    """So does one that ends before any story: the tree goes, the entry, and the folder."""
    begin(stories)
    early.drop_early(stories.repository.common_dir)
    require_nothing_left(stories.repository, stories.root)
    assert early.early_tree(stories.repository.common_dir) is None


@pytest.mark.parametrize("when", ["begun", "filled"])
def test_what_a_kill_leaves_is_removed_by_the_next_run(stories: Stories, when: str) -> None:
    """A tree without a seal is half made, whether git had ended or not."""
    command = [sys.executable, "-c", KILLED, str(stories.repository.top), when]
    assert subprocess.run(command, check=False).returncode == -9
    assert list(stories.root.glob("_spare-*"))
    stories.pool("run-2").begin()
    assert not list(stories.root.glob("_spare-*"))


def test_a_tree_whose_link_was_not_written_any_more_is_removed(stories: Stories) -> None:
    """A kill can come between the file and its content; what holds anything else is left alone."""
    for name in ("_spare-begun", "_spare-used"):
        (stories.root / name).mkdir(parents=True)
        (stories.root / name / ".git").touch()
    (stories.root / "_spare-used" / "work").touch()
    stories.pool("run-2").begin()
    assert [each.name for each in stories.root.glob("_spare-*")] == ["_spare-used"]


def _hold(stories: Stories) -> None:
    lease.acquire(stories.repository.common_dir, "run-other")


def _make_spare(stories: Stories) -> None:
    base = stories.repository.resolve("main")
    assert make_spare(stories.repository, stories.root, base, "run-0", guarded=True) == ""


def _filter(stories: Stories) -> None:
    git(stories.repository.top, "config", "filter.x.smudge", "touch ran; cat")


def _elsewhere(stories: Stories) -> None:
    git(stories.repository.top, "config", "core.hooksPath", "hooks")


def _hook(stories: Stories) -> None:
    (stories.repository.common_dir / "hooks").mkdir(exist_ok=True)
    (stories.repository.common_dir / "hooks" / "post-checkout").write_text("#!/bin/sh\n")


def _submodule(stories: Stories) -> None:
    (stories.repository.top / ".gitmodules").touch()


def _sparse(stories: Stories) -> None:
    git(stories.repository.top, "config", "core.sparseCheckout", "true")


@pytest.mark.parametrize("arrange", [_hold, _make_spare, _filter, _elsewhere, _hook, _submodule, _sparse])
def test_nothing_is_begun_where_more_belongs_to_a_worktree(stories: Stories, arrange: object) -> None:
    """Another run is active, a spare is there, or git would run something or leave files out."""
    assert callable(arrange)
    arrange(stories)
    early.check_out_early(stories.repository, stories.root, stories.repository.resolve("main"))
    assert early.early_tree(stories.repository.common_dir) is None

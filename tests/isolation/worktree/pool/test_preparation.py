"""A command that runs in spares ahead of their stories: what it left is used, or known not to be."""

from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.worktree.pool.pool import Pool
from isolation.worktree.pool.preparation import Preparation
from isolation.worktree.pool.seals import load_seals
from tests.conftest import git
from tests.isolation.worktree.pool.behavior import Stories, fill
from tests.isolation.worktree.pool.test_pool import add_spare

LOCK_FILE = "deps.lock"
MADE = "modules/made"


@pytest.fixture
def stories(repo: Path) -> Stories:
    fill(repo)
    for name, text in ((".gitignore", "modules/\n"), (LOCK_FILE, "1\n")):
        (repo / name).write_text(text)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "deps")
    return Stories(repo)


def install(tree: Path) -> None:
    """Do what a package manager does: fill a folder that git ignores."""
    (tree / "modules").mkdir(exist_ok=True)
    (tree / MADE).write_text("made\n")


async def prepared(
    stories: Stories, run: str = "run-1", *, install: Callable[[Path], None] = install, key: str = "key"
) -> Pool:
    """Return the pool of a run that has prepared its spares."""
    pool = having(stories.pool(run), install, key)
    await pool._prepare_one(stories.repository.resolve("main"))
    return pool


def having(pool: Pool, install: Callable[[Path], None] = install, key: str = "key") -> Pool:
    async def command(tree: Path, _commit: str) -> bool:
        install(tree)
        return True

    pool.preparation = Preparation(key=key, inputs=(f"**/{LOCK_FILE}",), run=command)
    return pool


async def test_a_story_gets_what_the_command_left(stories: Stories) -> None:
    """Also in a later run, which looks at every file that it left."""
    add_spare(stories)
    add_spare(stories)
    pool = await prepared(stories)
    await pool._prepare_one(stories.repository.resolve("main"))
    first = await stories.open(pool)
    assert first.prepared
    assert (first.path / MADE).read_text() == "made\n"
    later = await stories.open(having(stories.pool("run-2")))
    assert later.prepared
    assert (later.path / MADE).read_text() == "made\n"


async def test_a_prepared_tree_is_recycled_without_what_was_left(stories: Stories) -> None:
    """A spare that comes of a finished story is a fresh one, in which the command has to run again."""
    add_spare(stories)
    pool = await prepared(stories)
    workspace = await stories.open(pool)
    assert await stories.end(pool, workspace)
    again = await stories.open(pool)
    assert not again.prepared
    stories.require_fresh(again)


async def test_a_changed_input_is_prepared_again(stories: Stories) -> None:
    """The base has moved, and its lock file differs: the story must run the command itself."""
    add_spare(stories)
    pool = await prepared(stories)
    (stories.repository.top / LOCK_FILE).write_text("2\n")
    git(stories.repository.top, "commit", "-q", "-a", "-m", "newer")
    workspace = await stories.open(pool)
    assert not workspace.prepared
    assert (workspace.path / LOCK_FILE).read_text() == "2\n"


@pytest.mark.parametrize("what", ["modules/made", "modules/more", "a-file"])
async def test_what_was_changed_since_is_not_used(stories: Stories, what: str) -> None:
    """Between two runs anybody may have changed or added a file, ignored or not."""
    spare = add_spare(stories)
    await prepared(stories)
    (spare / what).write_text("made\n")
    workspace = await stories.open(having(stories.pool("run-2")))
    assert not workspace.prepared
    stories.require_fresh(workspace)


@pytest.mark.parametrize("key", ["other", None])
async def test_what_another_command_left_is_not_used(stories: Stories, key: str | None) -> None:
    """The hook has another text now, or runs in the trees of stories again."""
    add_spare(stories)
    await prepared(stories)
    later = stories.pool("run-2")
    workspace = await stories.open(having(later, key=key) if key else later)
    assert not workspace.prepared
    stories.require_fresh(workspace)


def _edit(tree: Path) -> None:
    (tree / LOCK_FILE).write_text("edited\n")


def _add(tree: Path) -> None:
    (tree / "not-ignored").touch()


def _clone(tree: Path) -> None:
    install(tree)
    git(tree, "init", "-q", "modules/inner")


def _configure(tree: Path) -> None:
    git(tree, "config", "core.autocrlf", "input")


@pytest.mark.parametrize("install", [_edit, _add, _clone, _configure])
async def test_a_command_that_does_more_prepares_nothing(
    stories: Stories, install: Callable[[Path], None]
) -> None:
    """Tracked files, files that git does not ignore, repositories, configuration: a new tree is made."""
    add_spare(stories)
    pool = await prepared(stories, install=install)
    assert not load_seals(stories.repository.common_dir)
    await pool.finish(stories.repository.resolve("main"))
    assert not any(seal.prepared for seal in load_seals(stories.repository.common_dir))
    workspace = await stories.open(pool)
    assert not workspace.prepared
    stories.require_fresh(workspace)

"""Small trees go from story to story: each story finds what a fresh worktree is, or gets one."""

import errno
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from isolation.git.registrations import load_registrations
from isolation.git.repository import Repository
from isolation.model import Workspace
from isolation.worktree import opening
from isolation.worktree.pool import inspection, turnover
from isolation.worktree.pool.pool import Pool
from isolation.worktree.removal import close
from tests.acceptance.program import run, write_story
from tests.conftest import git
from tests.isolation.worktree.pool.behavior import (
    DOUBTFUL,
    HARMLESS,
    KEPT,
    Behavior,
    Stories,
    attributes_for_good,
    delete,
    edit,
    fill,
    leave_files,
    modes,
    work,
)
from tests.isolation.worktree.worktrees import checkpointed, hook

NOT_UNDONE = (attributes_for_good, *DOUBTFUL)
"""After these the next story gets a tree of its own."""


@pytest.fixture
def stories(repo: Path) -> Stories:
    fill(repo)
    return Stories(repo, turnover=True)


def file_of(workspace: Workspace) -> int:
    """Return what tells whether a tree is the one that another story had."""
    return (workspace.path / "src" / "deep" / "data.txt").stat().st_ino


async def two(stories: Stories, pool: Pool, behave: Behavior) -> bool:
    """Whether the tree in which one story behaved is that of the next one, which must be fresh anyway."""
    first = await stories.open(pool)
    before = file_of(first)
    behave(first.path)
    await stories.end(pool, first)
    second = await stories.open(pool)
    stories.require_fresh(second)
    return file_of(second) == before


@pytest.mark.parametrize("behave", [*HARMLESS, *DOUBTFUL, *KEPT], ids=lambda each: each.__name__)
async def test_whatever_a_story_did_the_next_one_finds_a_fresh_tree(
    stories: Stories, behave: Behavior
) -> None:
    """Byte by byte, index and configuration included."""
    same = await two(stories, stories.pool("run-1"), behave)
    if behave in KEPT or behave in NOT_UNDONE:
        assert not same
    if behave in {edit, delete, leave_files, modes, work}:
        assert same


async def test_a_story_that_adds_a_file_hands_its_tree_on_without_git(
    stories: Stories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkout, no status, no process at all; and no wait for another checkout."""
    pool = stories.pool("run-1")
    await stories.end(pool, await stories.open(pool))  # what is asked once in a run is known then
    first = await stories.open(pool)
    before = file_of(first)
    (first.path / "src" / "new").mkdir()
    (first.path / "src" / "new" / "file.txt").write_text("new\n")
    assert stories.repository.has_identity  # asked once
    asked: list[tuple[str, ...]] = []
    real = Repository.run

    def counted(self: Repository, *args: str, **more: object) -> object:
        asked.append(args)
        return real(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Repository, "run", counted)
    made = checkpointed(stories.repository, first, first.index)
    done = first.__class__(
        path=first.path,
        branch=first.branch,
        base=first.base,
        head=made.tip,
        reattached=False,
        index=made.index,
    )
    assert (await close(stories.repository, done, sweep=False, reuse=pool.accept)).removed
    second = await stories.open(pool)
    assert [args for args in asked if args[0] != "rev-parse"] == []  # the test itself asks what HEAD is
    assert file_of(second) == before
    assert not (second.path / "src" / "new").exists()
    monkeypatch.undo()
    stories.require_fresh(second)


@pytest.mark.parametrize("what", ["src/f0.py", "src"])
async def test_what_a_process_has_open_is_not_handed_on(stories: Stories, what: str) -> None:
    """It could write there after the next story has begun."""
    pool = stories.pool("run-1")
    first = await stories.open(pool)
    with holding(first.path / what):
        before = file_of(first)
        await stories.end(pool, first)
        assert file_of(await stories.open(pool)) != before


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Have another process keep a file or folder open."""
    code = "import os, sys; f = os.open(sys.argv[1], os.O_RDONLY); print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.communicate()


async def test_one_look_serves_a_batch_of_trees(stories: Stories, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until so many are ready, stories get trees of their own; who is known to be harmless is not asked."""
    pool, asked = stories.pool("run-1"), list[set[int]]()
    handed = turnover.Turnover(stories.repository, "run-1", batch=2, own=lambda: {1})
    handed.expect(100)
    pool.turnover = handed
    real = inspection.held_inodes

    def counted(*, without: Collection[int]) -> dict[tuple[int, int], str]:
        asked.append(set(without))
        return real(without=without)

    monkeypatch.setattr(turnover, "held_inodes", counted)
    first, second = await stories.open(pool), await stories.open(pool)
    trees = {file_of(first), file_of(second)}
    await stories.end(pool, first)
    third = await stories.open(pool)
    assert file_of(third) not in trees
    assert asked == []
    await stories.end(pool, second)
    assert {file_of(await stories.open(pool)) for _ in range(2)} == trees
    assert asked == [{1}]


async def test_what_has_changed_around_a_tree_makes_a_new_one(stories: Stories) -> None:
    """Git's configuration, the base, and rules for attributes outside of the tree."""
    top, pool = stories.repository.top, stories.pool("run-1")

    def configured(_: Path) -> None:
        git(top, "config", "core.autocrlf", "true")

    def attributes(_: Path) -> None:
        (stories.repository.common_dir / "info").mkdir(exist_ok=True)
        (stories.repository.common_dir / "info" / "attributes").write_text("*.txt text eol=crlf\n")

    def moved(_: Path) -> None:
        git(top, "commit", "-q", "--allow-empty", "-m", "second")

    for change in (configured, attributes, moved):
        assert not await two(stories, pool, change)
        assert await two(stories, pool, edit)
    first = await stories.open(pool)
    before = file_of(first)
    await stories.end(pool, first)
    git(top, "config", "core.autocrlf", "false")  # while the tree waits for its story
    second = await stories.open(pool)
    stories.require_fresh(second)
    assert file_of(second) != before
    assert await two(stories, pool, edit)
    log = stories.root.parent / "log"

    def hooked(_: Path) -> None:
        hook(top, f'echo "$PWD" >> {log}')

    assert not await two(stories, pool, hooked)
    assert log.exists()


async def test_many_changes_are_not_undone(stories: Stories, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout costs no more then, and may wait for its turn."""
    monkeypatch.setattr(turnover, "_MOST_CHANGED", 1)
    pool = stories.pool("run-1")
    assert await two(stories, pool, edit)

    def both(path: Path) -> None:
        edit(path)
        delete(path)

    assert not await two(stories, pool, both)


async def test_no_more_trees_are_kept_than_stories_wait(stories: Stories) -> None:
    """The last ones are removed as ever, and can be brought back."""
    pool = stories.pool("run-1")
    assert pool.turnover is not None
    first, second = await stories.open(pool), await stories.open(pool)
    pool.turnover.expect(1)
    await stories.end(pool, first)
    assert [path.name for path in stories.root.iterdir() if path.name.startswith("_spare-")]
    await stories.end(pool, second)
    assert len([path for path in stories.root.iterdir() if path.name.startswith("_spare-")]) == 1
    pool.turnover.finish()
    assert len(load_registrations(stories.repository)) == 1


async def test_what_a_killed_run_leaves_is_removed_by_the_next(stories: Stories) -> None:
    """It has no seal, so nobody takes it for a spare."""
    pool = stories.pool("run-1")
    first = await stories.open(pool)
    await stories.end(pool, first)
    assert len(load_registrations(stories.repository)) == 2
    after = stories.pool("run-2")
    after.begin()
    assert len(load_registrations(stories.repository)) == 1
    stories.require_fresh(await stories.open(after))


async def test_several_stories_take_several_trees(stories: Stories) -> None:
    """At the same time, each another one."""
    pool = stories.pool("run-1")
    opened = [await stories.open(pool) for _ in range(4)]
    trees = {file_of(each) for each in opened}
    for each in opened:
        await stories.end(pool, each)
    found: list[Workspace] = []

    async def open_one() -> None:
        found.append(await stories.open(pool))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(open_one)
    assert {file_of(each) for each in found} == trees
    for each in found:
        stories.require_fresh(each)


def test_a_run_hands_trees_on(repo: Path, tmp_path: Path) -> None:
    """Through the real program: each story finds a clean tree, and few trees serve many stories."""
    (repo / "kept.txt").write_text("kept\n")
    (repo / ".gitignore").write_text("*.tmp\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "kept")
    seen = tmp_path / "seen"
    seen.mkdir()
    for number in range(12):
        name = f"s{number:02}"
        look = 'test -z "$(git status --porcelain)" && grep -qx kept kept.txt && test ! -e left.tmp'
        change = f"echo {name} | tee {name}.txt > kept.txt; mkdir -p out; touch out/{name}.o left.tmp"
        inode = f"stat -c %i README.md > {seen}/{name}"
        write_story(repo, name, command=f"{look} && {change} && {inode}")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")
    ran = run(repo, "--max-stories=2", "--window=fixed", "--trust", "--json")
    assert ran.code == 0, ran.out + ran.err
    assert {story["status"] for story in ran.data["stories"]} == {"done"}
    assert len({(seen / f"s{number:02}").read_text() for number in range(12)}) < 12
    for number in range(12):
        names = git(repo, "show", "--name-only", "--format=", f"autopilot/s{number:02}").split()
        assert names == ["kept.txt", f"out/s{number:02}.o", f"s{number:02}.txt"]
    assert len(load_registrations(Repository.open(repo))) == 1


async def test_a_tree_that_cannot_be_made_ready_is_no_story_s(
    stories: Stories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, say: the tree and the branch are gone again, and the next attempt works."""
    pool = stories.pool("run-1")
    await stories.end(pool, await stories.open(pool))
    branches = git(stories.repository.top, "branch", "--list")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(opening, "settle", full)
        with pytest.raises(OSError, match="No space left"):
            await stories.open(pool)
    assert git(stories.repository.top, "branch", "--list") == branches
    assert len(load_registrations(stories.repository)) == 1
    stories.require_fresh(await stories.open(pool))


def test_the_program_never_changes_its_own_umask() -> None:
    """It is read once, since only a process itself can change its own."""
    root = Path(turnover.__file__).parents[3]
    sources = (path for room in ("isolation", "runner") for path in (root / room).rglob("*.py"))
    assert not [path for path in sources if "os.umask" in path.read_text(encoding="utf-8")]

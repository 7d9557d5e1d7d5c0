"""The pool of worktrees: claimed, recycled, after a kill, and never different from a fresh worktree."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from isolation.errors import GitCommandError, WorkspaceError
from isolation.git.direct.index_file import summarize
from isolation.git.registrations import load_registrations
from isolation.worktree import opening
from isolation.worktree.gc import remove, survey
from isolation.worktree.opening import create_or_attach
from isolation.worktree.pool.making import make_spare
from isolation.worktree.pool.seals import REASON, load_seals
from tests.conftest import git
from tests.isolation.worktree.pool.behavior import DOUBTFUL, HARMLESS, KEPT, Behavior, Stories, fill
from tests.isolation.worktree.worktrees import git_dir_of, hook

KILLED = -9
DOOMED = """
import os, signal, sys
from pathlib import Path
import trio
from tests.isolation.worktree.pool.behavior import Stories, edit

left = int(sys.argv[2])

def count(event, args):
    global left
    if event in {"os.rename", "os.remove", "os.rmdir", "subprocess.Popen"}:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    stories = Stories(Path(sys.argv[1]))
    pool = stories.pool("killed")
    sys.addaudithook(count)
    for _ in range(2):
        workspace = await stories.open(pool)
        edit(workspace.path)
        await stories.end(pool, workspace)

trio.run(main)
"""


@pytest.fixture
def stories(repo: Path) -> Stories:
    fill(repo)
    return Stories(repo)


def spares(stories: Stories) -> list[Path]:
    return [Path(seal.path) for seal in load_seals(stories.repository.common_dir)]


def add_spare(stories: Stories, run: str = "run-1") -> Path:
    """Make a spare at the base, as the background does."""
    before, base = set(spares(stories)), stories.repository.resolve("main")
    assert make_spare(stories.repository, stories.root, base, run, guarded=True) == ""
    (new,) = set(spares(stories)) - before
    return new


async def test_a_recycled_worktree_is_a_fresh_one(stories: Stories) -> None:
    """Whatever stories did, the next one finds byte by byte what `git worktree add` makes."""
    pool = stories.pool("run-1")
    for third in range(3):
        workspace = await stories.open(pool)
        stories.require_fresh(workspace)
        for behave in HARMLESS[third::3]:
            behave(workspace.path)
        assert await stories.end(pool, workspace)
        assert len(spares(stories)) == 1
    stories.require_fresh(await stories.open(pool))
    assert stories.recycled == 3
    assert not spares(stories)


@pytest.mark.chaos
@pytest.mark.parametrize("behave", [*HARMLESS, *DOUBTFUL, *KEPT], ids=lambda each: each.__name__)
async def test_each_habit_alone(stories: Stories, behave: Behavior) -> None:
    """A habit that leaves no doubt lets the next story have the tree; after any other it gets a fresh one."""
    pool = stories.pool("run-1")
    workspace = await stories.open(pool)
    behave(workspace.path)
    assert await stories.end(pool, workspace) == (behave not in KEPT)
    assert bool(spares(stories)) == (behave in HARMLESS)
    stories.require_fresh(await stories.open(pool))


async def test_doubt_makes_a_fresh_worktree(stories: Stories) -> None:
    """What git does not show, what another process holds and what is half done is never handed on."""
    pool = stories.pool("run-1")
    for behave in (*DOUBTFUL, hold):
        workspace = await stories.open(pool)
        holder = behave(workspace.path)
        assert await stories.end(pool, workspace)
        assert not spares(stories), behave
        if holder is not None:
            holder.communicate()
    stories.require_fresh(await stories.open(pool))


def hold(path: Path) -> "subprocess.Popen[bytes]":
    """Leave a process that could still write to a file."""
    code = "import sys; f = open(sys.argv[1], 'ab'); print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, str(path / "run.sh")]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


async def test_a_spare_is_claimed_once_and_follows_the_base(stories: Stories) -> None:
    """Of two claims one gets the spare; a base that moved since is checked out; attributes ask for more."""
    top, pool = stories.repository.top, stories.pool("run-1")
    spare = add_spare(stories)
    reasons = {entry.path: entry.lock_reason for entry in load_registrations(stories.repository)}
    assert reasons[spare] == REASON
    request, got = stories.request(pool), []
    threads = [threading.Thread(target=lambda: got.append(pool.take(request))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (taken,) = (each for each in got if each is not None)
    pool.put_back(taken)
    (top / "src" / "f1.py").write_text("new base\n")
    git(top, "commit", "-q", "-a", "-m", "second")
    workspace = await stories.open(pool)
    assert (stories.recycled, spare.exists()) == (1, False)
    stories.require_fresh(workspace)
    add_spare(stories)
    (top / ".gitattributes").write_text("* text eol=crlf\n")
    git(top, "commit", "-q", "-a", "-m", "third")
    stories.require_fresh(await stories.open(pool))
    add_spare(stories)
    git(top, "config", "core.autocrlf", "true")
    stories.require_fresh(await stories.open(pool))
    assert not spares(stories)


async def test_the_next_run_looks_again(stories: Stories) -> None:
    """A spare of an earlier run is used only as it was left; a hook sees the checkout of every story once."""
    for change in ("mode", "file", "none"):
        spare = add_spare(stories)
        if change == "mode":
            (spare / "src" / "f0.py").chmod(0o600)
        elif change == "file":
            (spare / "left.o").write_text("left")
        stories.require_fresh(await stories.open(stories.pool("run-2")))
        assert not spare.exists()
    assert stories.recycled == 3
    add_spare(stories)
    log = stories.root.parent / "log"
    hook(stories.repository.top, f'echo "$3 $PWD" >> {log}')
    workspace = await stories.open(stories.pool("run-2"))
    assert log.read_text() == f"1 {workspace.path}\n"


async def test_gc_empties_the_pool(stories: Stories) -> None:
    """Spares are listed and removed, with all that is known about them."""
    paths = {add_spare(stories), add_spare(stories)}
    found = await survey(stories.repository, stories.root)
    assert {each.path for each in found if each.removable} == paths
    for each in found:
        assert (await remove(stories.repository, each)).removed
    assert not spares(stories)
    assert not stories.root.exists()
    assert len(load_registrations(stories.repository)) == 1


@pytest.mark.parametrize("at", [9, 20])
async def test_a_kill_leaves_nothing_half_made(stories: Stories, at: int) -> None:
    """Whenever a run is killed, the next one gets fresh worktrees, and nothing of the killed one is used."""
    assert killed_at(stories, at)
    await require_safe(stories)


async def test_a_claim_that_was_killed_before_its_checkout(
    stories: Stories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spare at an older commit is checked out later, and never taken for a tree in which much was undone.

    What somebody wrote there meanwhile stays.
    """
    add_spare(stories)
    top, pool = stories.repository.top, stories.pool("run-1")
    (top / "src" / "f1.py").write_text("new base\n")
    (top / "src" / "f2.py").unlink()
    (top / "added.txt").write_text("added\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "second")

    def killed(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(opening, "populate", killed)
        patched.setattr(opening, "_roll_back", lambda *_: None)  # as if there had been no time for it
        with pytest.raises(InterruptedError):
            await stories.open(pool)
    request = stories.request(pool)
    (request.path / "added.txt").write_text("mine\n")
    with pytest.raises(WorkspaceError, match="not checked out completely") as refused:
        await create_or_attach(stories.repository, request, trio.CapacityLimiter(2))
    assert isinstance(refused.value.__cause__, GitCommandError), "what git said decides how the story ends"
    assert (request.path / "added.txt").read_text() == "mine\n"
    (request.path / "added.txt").write_text("add")  # as a checkout that was killed leaves it
    stories.require_fresh(await create_or_attach(stories.repository, request, trio.CapacityLimiter(2)))


@pytest.mark.chaos
async def test_a_kill_at_every_step(repo: Path, tmp_path: Path) -> None:
    """The same at every rename, deletion and start of a process, until the run comes to its end."""
    fill(repo)
    for at in range(1, 200):
        copy = tmp_path / f"at-{at}" / "repo"
        copy.parent.mkdir()
        git(tmp_path, "clone", "-q", str(repo), str(copy))
        killed = killed_at(Stories(copy), at)
        await require_safe(Stories(copy))
        if not killed:
            return
    pytest.fail("the run never came to its end")


def killed_at(stories: Stories, at: int) -> bool:
    """Run two stories in a process that is killed at one step; False if it came to its end before."""
    argv = [sys.executable, "-c", DOOMED, str(stories.repository.top), str(at)]
    ended = subprocess.run(argv, check=False, capture_output=True, cwd=Path(__file__).parents[4])
    assert ended.returncode in {0, KILLED}, ended.stderr.decode()
    return ended.returncode == KILLED


async def require_safe(stories: Stories) -> None:
    """Fail unless the next run finds nothing half made, and fresh worktrees."""
    pool = stories.pool("next")
    pool.begin()
    sealed = set(spares(stories))
    assert {each for each in stories.root.glob("_spare-*") if each not in sealed} == set()
    for _ in range(3):
        stories.require_fresh(await stories.open(pool, again=True))


def test_an_index_is_read_in_every_version(stories: Stories) -> None:
    """Files, submodules and bytes are those that git knows, for indexes of all versions."""
    top = stories.repository.top
    sizes = [(top / name).lstat().st_size for name in git(top, "ls-files", "-z").split("\0") if name]
    git(top, "update-index", "--add", "--cacheinfo", f"160000,{stories.repository.resolve('main')},sub")
    for version in ("2", "3", "4"):
        if version == "3":
            git(top, "update-index", "--skip-worktree", "run.sh")
        git(top, "update-index", "--index-version", version)
        found = summarize(git_dir_of(top) / "index")
        assert (found.files, found.submodules, found.size) == (len(sizes), 1, sum(sizes))
    with pytest.raises(ValueError, match="index"):
        summarize(top / "run.sh")

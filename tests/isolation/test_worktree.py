"""Worktrees of stories: made, found again, refused, closed, with real git and real processes."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from isolation import closing, population, worktree
from isolation.errors import WorkspaceError
from isolation.layout import worktree_path, worktree_root
from isolation.model import Workspace, WorkspaceRequest
from isolation.registrations import load_registrations
from isolation.repository import Repository
from isolation.workspace import open_workspace
from tests.conftest import git

OPENER = """
import sys
from pathlib import Path
import trio
from isolation.layout import worktree_path, worktree_root
from isolation.model import WorkspaceRequest
from isolation.repository import Repository
from isolation.worktree import create_or_attach

repository = Repository.open(Path(sys.argv[1]))
root = worktree_root(repository.common_dir)

async def create(limiter, story):
    request = WorkspaceRequest(
        run_id="run", story_id=story, branch=f"autopilot/{story}",
        path=worktree_path(root, story), parents=(repository.resolve("HEAD"),))
    workspace = await create_or_attach(repository, request, limiter)
    print(workspace.path, flush=True)

async def main():
    limiter = trio.CapacityLimiter(2)
    sys.stdin.readline()
    async with trio.open_nursery() as nursery:
        for story in sys.argv[2:]:
            nursery.start_soon(create, limiter, story)

trio.run(main)
"""


@pytest.fixture
def repository(repo: Path) -> Repository:
    return Repository.open(repo)


@pytest.fixture
def limiter() -> trio.CapacityLimiter:
    return trio.CapacityLimiter(2)


def wanted(
    repository: Repository, story: str = "one", *, run: str = "run-1", base: str = ""
) -> WorkspaceRequest:
    """Ask for a story's worktree in the usual place."""
    return WorkspaceRequest(
        run_id=run,
        story_id=story,
        branch=f"autopilot/{story}",
        path=worktree_path(worktree_root(repository.common_dir), story),
        parents=(base or repository.resolve("HEAD"),),
    )


async def make(
    repository: Repository, story: str = "one", *, run: str = "run-1", torn: bool = False
) -> Workspace:
    """Give a story its worktree, within bounds."""
    with trio.fail_after(60):
        request = wanted(repository, story, run=run)
        return await worktree.create_or_attach(repository, request, trio.CapacityLimiter(2), torn=torn)


def commit(cwd: Path, name: str = "work", text: str = "work") -> str:
    """Commit one file and give the new commit."""
    (cwd / name).write_text(text)
    git(cwd, "add", "-A")
    git(cwd, "commit", "-q", "-m", name)
    return git(cwd, "rev-parse", "HEAD").strip()


def branches(top: Path) -> set[str]:
    """Name all local branches."""
    return set(git(top, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split())


def hook(top: Path, body: str) -> None:
    """Install a post-checkout hook."""
    path = top / ".git" / "hooks" / "post-checkout"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def contents(top: Path) -> dict[str, bytes]:
    """Read every file of a checkout, its index and HEAD included."""
    files = [path for path in top.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path): path.read_bytes() for path in (*files, top / ".git" / "index", top / ".git" / "HEAD")}


async def test_two_stories_get_distinct_worktrees_and_the_main_checkout_stays(repository: Repository) -> None:
    """Acceptance 9: own trees, branches and indexes; what the user has in the checkout is untouched."""
    (repository.top / "untracked").write_text("mine")
    (repository.top / "README.md").write_text("edited")
    before = contents(repository.top)
    one, two = await make(repository, "one"), await make(repository, "two")
    assert one.path != two.path
    assert {one.branch, two.branch} == {"autopilot/one", "autopilot/two"}
    assert repository.git_dir(one.path) != repository.git_dir(two.path)
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


@pytest.mark.parametrize("branch", ["-d", "a.lock", "@", "a..b", "refs/heads/x", "x" * 300, "a b", "a\0b"])
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


@pytest.mark.parametrize("inside", ["", ".git"])
async def test_a_path_inside_the_checkout_is_refused(
    repository: Repository, limiter: trio.CapacityLimiter, inside: str
) -> None:
    """A worktree inside the checkout, or inside `.git`, is refused."""
    ask = wanted(repository)
    path = repository.top / inside / "one"
    request = WorkspaceRequest(
        run_id=ask.run_id, story_id="one", branch=ask.branch, path=path, parents=ask.parents
    )
    with pytest.raises(WorkspaceError, match="lies inside"):
        await worktree.create_or_attach(repository, request, limiter)
    assert not path.exists()


@pytest.mark.parametrize("blocking", ["autopilot", "autopilot/one/more"])
async def test_a_branch_in_the_way_is_named(repository: Repository, blocking: str) -> None:
    """Reliability 26: git cannot have `a` and `a/b`; the error says which one blocks."""
    git(repository.top, "branch", blocking)
    with pytest.raises(WorkspaceError, match=f"while there is a branch {blocking}"):
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
    """A worktree that somebody deleted by hand comes back on its branch."""
    first = await make(repository)
    tip = commit(first.path)
    shutil.rmtree(first.path)
    again = await make(repository, run="run-2")
    assert (again.head, again.reattached) == (tip, True)
    assert (again.path / "work").exists()


async def test_several_parents_give_their_merge(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """Acceptance 23, 24: a dependant starts with the commits of all it depends on."""
    tips = []
    for story in ("a", "b"):
        tips.append(commit((await make(repository, story)).path, story))
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


async def test_a_rollback_spares_what_checkout_did_not_put_there(
    make_repository: Callable[..., Path],
) -> None:
    """Files of a hook are not git's: the folder stays, and so does the branch it needs."""
    attributes = {".gitattributes": "*.bin filter=broken\n", "a.bin": "x"}
    repository = Repository.open(make_repository(files=attributes))
    git(repository.top, "config", "filter.broken.smudge", "exit 1")
    git(repository.top, "config", "filter.broken.required", "true")
    hook(repository.top, "rm -f README.md; echo precious > notes")
    git(repository.top, "config", "--unset", "filter.broken.required")
    with pytest.raises(WorkspaceError, match=r"README\.md"):
        await make(repository)
    assert (wanted(repository).path / "notes").read_text() == "precious\n"
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
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    hook(repository.top, f"echo begun > {fifo}")
    with trio.fail_after(30), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make, repository)
            await trio.to_thread.run_sync(fifo.read_text)
            scope.cancel()
    assert scope.cancelled_caught
    assert branches(repository.top) == {"main"}
    assert len(load_registrations(repository)) == 1
    assert not worktree_root(repository.common_dir).exists()


async def test_a_passing_failure_of_worktree_add_is_tried_again(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The known race of git's own, which leaves the new branch behind, costs nothing but a retry."""
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *"worktree add"*) if [ ! -e {tmp_path}/failed ]; then\n'
        f"touch {tmp_path}/failed; /usr/bin/git -C {repository.top} branch autopilot/one\n"
        "echo 'fatal: failed to read .git/worktrees/one/commondir: Success' >&2; exit 128; fi;; esac\n"
        'exec /usr/bin/git "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    workspace = await make(repository)
    assert (tmp_path / "failed").exists()
    assert (workspace.path / "README.md").exists()


def slow_smudge(top: Path, fifo: Path) -> None:
    """Let the checkout of `b.slow` block until it is killed, telling when it has come to it."""
    os.mkfifo(fifo)
    git(top, "config", "filter.slow.smudge", f"echo begun > {fifo}; sleep 1000")
    git(top, "config", "filter.slow.required", "true")


async def test_a_creation_killed_while_filling_is_completed(
    make_repository: Callable[..., Path], tmp_path: Path
) -> None:
    """Reliability 14: SIGKILL of coordinator and git in the middle; then all files, one branch, no lock."""
    files = {".gitattributes": "*.slow filter=slow\n", "a.txt": "long content\n", "b.slow": "b", "c.txt": "c"}
    repository = Repository.open(make_repository(files=files))
    fifo = tmp_path / "fifo"
    slow_smudge(repository.top, fifo)
    args = [sys.executable, "-c", OPENER, str(repository.top), "one"]
    with subprocess.Popen(args, stdin=subprocess.PIPE, start_new_session=True) as opener:
        assert opener.stdin is not None
        opener.stdin.write(b"\n")
        opener.stdin.flush()
        await trio.to_thread.run_sync(fifo.read_text)
        os.killpg(opener.pid, signal.SIGKILL)
    path = wanted(repository).path
    assert (repository.git_dir(path) / "index.lock").exists()
    assert not (repository.git_dir(path) / "index").exists()
    (path / "a.txt").write_text("long")  # as a write that was cut short
    git(repository.top, "config", "--remove-section", "filter.slow")
    workspace = await make(repository, run="run-2")
    assert repository.dirty_paths(path) == ()
    assert (path / "b.slow").read_text() == "b"
    assert workspace.reattached
    assert branches(repository.top) == {"main", "autopilot/one"}
    assert len(load_registrations(repository)) == 2


async def test_completing_a_torn_tree_overwrites_nobodys_work(make_repository: Callable[..., Path]) -> None:
    """Reliability 14: missing files come back, a changed one stays changed."""
    repository = Repository.open(make_repository(files={"a": "a\n", "b": "b\n"}))
    first = await make(repository)
    (repository.git_dir(first.path) / "index").unlink()
    (first.path / "a").write_text("somebody's work\n")
    (first.path / "b").unlink()
    await make(repository, run="run-2", torn=True)
    assert (first.path / "a").read_text() == "somebody's work\n"
    assert (first.path / "b").read_text() == "b\n"
    assert repository.dirty_paths(first.path) == ("a",)


@pytest.mark.parametrize("stage", ["pointer only", "no head", "nothing but a folder"])
async def test_a_registration_killed_half_way_is_made_anew(repository: Repository, stage: str) -> None:
    """Reliability 14: whatever `git worktree add` had written when it was killed, a rerun succeeds."""
    request = wanted(repository)
    git(
        repository.top,
        "worktree",
        "add",
        "-q",
        "--no-checkout",
        "--lock",
        "-b",
        request.branch,
        str(request.path),
    )
    git_dir = repository.git_dir(request.path)
    if stage == "no head":
        (git_dir / "HEAD").write_text("0" * 40 + "\n")
    elif stage == "pointer only":
        (git_dir / "gitdir").unlink()
    else:
        shutil.rmtree(git_dir)
        (request.path / ".git").unlink()
    await make(repository, torn=True)
    assert (request.path / "README.md").exists()
    assert repository.current_branch(request.path) == request.branch


async def test_an_index_lock_of_a_living_git_is_respected(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a process lives in a torn tree its lock stays, and the wait is bounded."""
    monkeypatch.setattr(population, "_ORPHAN_PATIENCE", 0.2)
    first = await make(repository)
    git_dir = repository.git_dir(first.path)
    (git_dir / "index").unlink()
    (git_dir / "index.lock").write_text("")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=first.path):
        with pytest.raises(WorkspaceError, match="at work"):
            await make(repository, run="run-2")
        assert (git_dir / "index.lock").exists()


def crowd(repository: Repository, round_number: int) -> None:
    """Let 3 processes make 8 worktrees each at once, and check every one of them."""
    stories = [[f"r{round_number}p{process}s{number}" for number in range(8)] for process in range(3)]
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
        assert len(out.splitlines()) == 8
    wanted_names = {f"autopilot/{name}" for names in stories for name in names}
    made = {entry.branch for entry in load_registrations(repository)[1:]}
    assert wanted_names <= made
    assert branches(repository.top) == made | {"main"}


def test_24_worktrees_at_once_from_3_processes(repository: Repository) -> None:
    """Acceptance 15: 24 of 24, no stray branch."""
    crowd(repository, 0)


@pytest.mark.chaos
def test_24_worktrees_at_once_ten_times(repository: Repository) -> None:
    """Acceptance 15, repeated: 240 of 240."""
    for number in range(10):
        crowd(repository, number)


async def test_a_finished_clean_story_leaves_only_its_branch(repository: Repository) -> None:
    """Acceptance 14: tree and metadata gone, branch and commits kept, even ignored files do not hold it."""
    workspace = await make(repository)
    (repository.common_dir / "info" / "exclude").write_text("cache/\n")
    (workspace.path / "cache").mkdir()
    (workspace.path / "cache" / "x").write_text("x")
    (workspace.path / "cache").chmod(0o500)
    tip = commit(workspace.path)
    result = await closing.close(repository, workspace)
    assert result.removed
    assert not worktree_root(repository.common_dir).exists()
    assert not (repository.common_dir / "worktrees").exists()
    assert repository.branch_tip("autopilot/one") == tip


Spoil = Callable[[Path], object]


def _stage(path: Path) -> None:
    (path / "new").write_text("x")
    git(path, "add", "new")


def _detached_commit(path: Path) -> None:
    git(path, "checkout", "-q", "--detach")
    commit(path)


def _abandoned_commit(path: Path) -> None:
    _detached_commit(path)
    git(path, "switch", "-q", "autopilot/one")


def _merging(path: Path) -> None:
    (Path(git(path, "rev-parse", "--absolute-git-dir").strip()) / "MERGE_HEAD").write_text("x")


def _hidden_edit(path: Path) -> None:
    git(path, "update-index", "--skip-worktree", "README.md")
    (path / "README.md").write_text("hidden")


def _committed_repository(path: Path) -> None:
    git(path, "init", "-q", "-b", "main", "inner")
    commit(path / "inner")
    git(path, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    git(path, "commit", "-q", "-m", "gitlink")


def _stash(path: Path) -> None:
    (path / "README.md").write_text("stashed")
    git(path, "stash", "-q")


def _own_ref(path: Path) -> None:
    git(path, "update-ref", "refs/worktree/mine", "HEAD")


SPOILS: dict[str, tuple[Spoil, str]] = {
    "untracked": (lambda path: (path / "a b").write_text("x"), "1 uncommitted file: a b"),
    "modified": (lambda path: (path / "README.md").write_text("x"), "1 uncommitted file: README.md"),
    "staged": (_stage, "1 uncommitted file: new"),
    "many": (
        lambda path: [(path / f"f{number}").write_text("x") for number in range(7)],
        "7 uncommitted files: f0, f1, f2, f3, f4 and 2 others",
    ),
    "detached": (_detached_commit, "not reachable from autopilot/one"),
    "abandoned": (_abandoned_commit, "on no branch"),
    "merging": (_merging, "middle of a merge"),
    "hidden": (_hidden_edit, "skip-worktree or assume-unchanged: README.md"),
    "nested": (_committed_repository, "other git repositories: inner"),
    "stash": (_stash, "1 stash entry"),
    "ref": (_own_ref, "refs of its own"),
    "other branch": (lambda path: git(path, "switch", "-q", "-c", "other"), "on branch other"),
    "no git": (lambda path: (path / ".git").unlink(), "not a worktree of this repository"),
    "locked index": (
        lambda path: (Path(git(path, "rev-parse", "--absolute-git-dir").strip()) / "index.lock").touch(),
        "index.lock exists",
    ),
}


@pytest.mark.parametrize("name", SPOILS)
async def test_what_would_be_lost_keeps_the_worktree(repository: Repository, name: str) -> None:
    """Acceptance 13: dirty, unreachable, or in the middle of something: kept, and the reason named."""
    spoil, reason = SPOILS[name]
    workspace = await make(repository)
    spoil(workspace.path)
    before = sorted(path for path in workspace.path.rglob("*"))
    result = await closing.close(repository, workspace)
    assert not result.removed
    assert reason in result.reason
    assert sorted(path for path in workspace.path.rglob("*")) == before
    assert load_registrations(repository)[1].lock_reason is not None


async def test_a_tree_that_cannot_be_moved_stays_registered(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When git does not let go of the registration, the tree is back in its place, locked."""
    workspace = await make(repository)
    (repository.git_dir(workspace.path) / "locked").chmod(0o600)
    monkeypatch.setattr(closing, "clear_missing", _refuse)
    result = await closing.close(repository, workspace)
    assert (result.removed, result.reason) == (False, "no")
    assert (workspace.path / "README.md").exists()
    assert load_registrations(repository)[1].path == workspace.path


def _refuse(repository: Repository, path: Path) -> None:
    del repository, path
    from isolation.errors import RepositoryError

    raise RepositoryError("no")


async def test_trash_of_a_crashed_run_is_swept_without_following_links(
    repository: Repository, tmp_path: Path
) -> None:
    """What was moved aside goes; what a link in it leads to stays, with its mode."""
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("x")
    root = worktree_root(repository.common_dir)
    leftover = root / closing.TRASH / "one-abc"
    (leftover / "sealed").mkdir(parents=True)
    (leftover / "sealed" / "file").write_text("x")
    (leftover / "node_modules").symlink_to(kept)
    (leftover / "sealed").chmod(0)
    closing.sweep_trash(root)
    assert not root.exists()
    assert (kept / "file").exists()
    assert kept.stat().st_mode & 0o777 == 0o755


async def test_an_unfinished_story_keeps_its_workspace(
    repository: Repository, limiter: trio.CapacityLimiter
) -> None:
    """Only a body that says so lets the tree go; an error in it keeps the tree."""
    async with open_workspace(repository, wanted(repository), limiter=limiter) as opened:
        path = opened.workspace.path
    assert opened.closing is not None
    assert (opened.closing.removed, opened.closing.reason) == (False, "story not finished")
    with pytest.raises(ZeroDivisionError):
        async with open_workspace(repository, wanted(repository), limiter=limiter) as opened:
            opened.finished = True
            raise ZeroDivisionError
    assert path.exists()
    async with open_workspace(repository, wanted(repository), limiter=limiter) as opened:
        opened.finished = True
    assert opened.closing is not None
    assert opened.closing.removed
    assert not path.exists()

"""What the tests of worktrees share: asking for one, committing in it, another process that makes some."""

from pathlib import Path

import trio

from isolation.git.commits import Checkpoint, checkpoint
from isolation.git.repository import Repository
from isolation.model import Workspace, WorkspaceRequest
from isolation.paths import own_git_dir, worktree_path, worktree_root
from isolation.worktree import opening as worktree
from tests.conftest import git

OPENER = """
import sys
from pathlib import Path
import trio
from isolation.paths import worktree_path, worktree_root
from isolation.model import WorkspaceRequest
from isolation.git.repository import Repository
from isolation.worktree.opening import create_or_attach

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
    repository: Repository, story: str = "one", *, run: str = "run-1", interrupted: bool = False
) -> Workspace:
    """Open a story's worktree, with a time limit."""
    with trio.fail_after(60):
        request = wanted(repository, story, run=run)
        return await worktree.create_or_attach(
            repository, request, trio.CapacityLimiter(2), interrupted=interrupted
        )


def checkpointed(repository: Repository, workspace: Workspace, index: tuple[int, ...]) -> Checkpoint:
    """Commit what is in a workspace as the program does."""
    return checkpoint(
        repository,
        workspace.path,
        workspace.branch,
        "work\n",
        1_700_000_000,
        base=workspace.base,
        since=workspace.head,
        index=index,
    )


def commit(cwd: Path, name: str = "work", text: str = "work") -> str:
    """Commit one file and give the new commit."""
    (cwd / name).write_text(text)
    git(cwd, "add", "-A")
    git(cwd, "commit", "-q", "-m", name)
    return git(cwd, "rev-parse", "HEAD").strip()


def branches(top: Path) -> set[str]:
    """Return all local branches."""
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


def git_dir_of(checkout: Path) -> Path:
    """Return the git directory of a checkout that surely has one."""
    found = own_git_dir(checkout)
    assert found is not None
    return found


def checkpoint_of_main(repository: Repository, message: str, date: float) -> str:
    """Make a checkpoint of the main checkout and give the tip; the count must agree with git's."""
    base = git(repository.top, "rev-list", "--max-parents=0", "main").strip()
    made = checkpoint(repository, repository.top, "main", message, date, base=base, since=base)
    assert made.commits == int(git(repository.top, "rev-list", "--count", f"{base}..main"))
    return made.tip

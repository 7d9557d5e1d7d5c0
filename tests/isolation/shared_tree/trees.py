"""What the tests of the shared tree share: a checkout of packages, claims on them, a story's place there."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from isolation.claims import globs as claims
from isolation.claims.globs import Claim
from isolation.git.commits import Checkpoint
from isolation.git.repository import Repository
from isolation.model import Workspace, WorkspaceRequest
from isolation.shared_tree.claim_branch import commit_claim, open_claim
from isolation.shared_tree.tree_watch import TreeWatch
from tests.conftest import git

DATE = 1_700_000_000.0
PACKAGES = {f"packages/{name}/x": f"{name}\n" for name in "abc"}


def claim(story: str) -> Claim:
    """Claim the package of a story."""
    return claims.compile([f"packages/{story}/**"])


def request(
    repository: Repository, story: str = "a", *, run: str = "run-1", parent: str = ""
) -> WorkspaceRequest:
    """Ask for a story's place in the checkout."""
    return WorkspaceRequest(
        run_id=run,
        story_id=story,
        branch=f"autopilot/{story}",
        path=repository.top,
        parents=(parent or repository.resolve("HEAD"),),
    )


@contextmanager
def in_the_middle(top: Path, way: str, act: Callable[[], object]) -> Iterator[str]:
    """Act once while git runs a filter for a path; the filter itself is confined, so it waits for us.

    Yields the filter's command; `way` is `clean` or `smudge`, for the filter `meanwhile`.
    """
    begun, done = top.parent / "filter-begun", top.parent / "filter-done"
    command = f"touch {begun}; until [ -e {done} ]; do sleep 0.01; done; cat"
    git(top, "config", f"filter.meanwhile.{way}", command)

    def wait() -> None:
        while not begun.exists():
            time.sleep(0.005)
        try:
            act()
        finally:
            done.touch()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield command
    done.touch()
    thread.join(timeout=30)


def entered(
    repository: Repository, story: str = "a", *, resumed: bool = False, run: str = "run-1"
) -> Workspace:
    """Open a story's claim."""
    return open_claim(repository, request(repository, story, run=run), claim(story), resumed=resumed)


def committed(
    repository: Repository,
    workspace: Workspace,
    story: str = "a",
    *,
    message: str = "work\n",
    own: Claim | None = None,
) -> Checkpoint:
    """Commit what a story owns."""
    return commit_claim(
        repository,
        workspace,
        own or claim(story),
        message,
        DATE,
        since=workspace.head,
    )


def watch(
    top: Path, owners: Mapping[str, Claim] | None = None, *, open_to_all: tuple[str, ...] = ("shared/**",)
) -> TreeWatch:
    """Watch a checkout whose packages belong to the stories of the same name."""
    watching = TreeWatch(
        Repository.open(top),
        run_id="run-1",
        claims=owners or {story: claim(story) for story in "abc"},
        open_to_all=claims.compile(open_to_all),
    )
    watching.begin()
    return watching

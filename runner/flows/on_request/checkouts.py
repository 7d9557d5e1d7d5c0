"""Where the branch of a story is changed on request: its own worktree, or its claim in the shared tree.

Both say what is not committed, commit a few files, and follow the branch to a new commit. Neither overwrites
a file that differs from the branch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from isolation.claims import globs as claims
from isolation.claims.globs import Claim
from isolation.git.checkout import read_status
from isolation.git.commits import commit_paths
from isolation.git.repository import Repository
from isolation.model import Workspace
from isolation.paths import folds_case
from isolation.shared_tree.claim_branch import advance_claim, changed_in_claim, commit_claim
from runner.core.model import RunSnapshot, StorySnapshot
from runner.core.text.names import one_line


class Seen(Struct, frozen=True, kw_only=True):
    """The branch that a checkout holds, its tip, and the files that differ from it."""

    branch: str | None
    tip: str | None
    dirty: tuple[str, ...]


class Checkout(Protocol):
    """A place that holds the files of a story's branch."""

    @property
    def path(self) -> Path:
        """The top of the tree."""

    @property
    def cleaning(self) -> str:
        """How to bring files in line with the branch, as a hint."""

    def read(self) -> Seen:
        """Read what is there now."""

    def commit(self, paths: Sequence[str], message: str, at: float) -> str | None:
        """Commit some files and nothing else; return the new tip, None if nothing was committed."""

    def advance(self, old: str, new: str) -> str:
        """Move the branch to a new commit, with its files; return why not, or nothing if it moved."""


class OwnWorktree(Struct, frozen=True, kw_only=True):
    """A worktree that has the story's branch checked out."""

    repository: Repository
    path: Path
    branch: str

    @property
    def cleaning(self) -> str:
        """How to bring files in line with the branch, as a hint."""
        return "commit or stash them there, then try again"

    def read(self) -> Seen:
        """Read what is there now."""
        status = read_status(self.repository, self.path)
        return Seen(branch=status.branch, tip=status.head, dirty=status.dirty)

    def commit(self, paths: Sequence[str], message: str, at: float) -> str | None:
        """Commit some files and nothing else; return the new tip, None if nothing was committed."""
        return commit_paths(self.repository, self.path, self.branch, message, at, paths=paths)

    def advance(self, old: str, new: str) -> str:
        """Move the branch to a new commit, with its files; return why not, or nothing if it moved."""
        if self.repository.head(self.path) != old:
            return "its branch has moved"
        # A fast-forward, because git itself then refuses to overwrite uncommitted changes; hooks and an
        # automatic stash must not interfere with that.
        quiet = ("-c", "core.hooksPath=/dev/null", "-c", "merge.autoStash=false")
        forward = ("merge", "--quiet", "--ff-only", "--no-verify-signatures", "--no-stat", new)
        moved = self.repository.run(*quiet, *forward, cwd=self.path, check=False)
        return one_line(moved.stderr) if moved.returncode != 0 else ""


class ClaimInSharedTree(Struct, frozen=True, kw_only=True):
    """What a story owns of the user's checkout, which stays on its own branch."""

    repository: Repository
    path: Path
    branch: str
    base: str
    claim: Claim

    @property
    def cleaning(self) -> str:
        """How to bring files in line with the branch, as a hint."""
        name = self.repository.name_of_branch(self.branch)
        return f"copy what you want to keep, then `git restore --source {name} -- PATH`, or remove new files"

    def read(self) -> Seen:
        """Read what is there now."""
        tip = self.repository.branch_tip(self.branch)
        dirty = changed_in_claim(self.repository, self.path, self.branch, self.claim, tip) if tip else ()
        return Seen(branch=self.branch if tip else None, tip=tip, dirty=dirty)

    def commit(self, paths: Sequence[str], message: str, at: float) -> str | None:
        """Commit some files and nothing else; return the new tip, None if nothing was committed."""
        tip = self.repository.branch_tip(self.branch) or self.base
        workspace = Workspace(path=self.path, branch=self.branch, base=self.base, head=tip, reattached=True)
        own = claims.compile(tuple(paths), folding=folds_case(self.path))
        made = commit_claim(self.repository, workspace, own, message, at, since=tip)
        return made.tip if made.tip != tip else None

    def advance(self, old: str, new: str) -> str:
        """Move the branch to a new commit, with its files; return why not, or nothing if it moved."""
        return one_line(advance_claim(self.repository, self.path, self.branch, old, new))


def claim_checkout(
    repository: Repository, run: RunSnapshot, story: StorySnapshot, globs: Sequence[str]
) -> ClaimInSharedTree:
    """Return the checkout of a story that worked in the shared tree, where it owns `globs`."""
    return ClaimInSharedTree(
        repository=repository,
        path=repository.top,
        branch=story.workspace.branch or "",
        base=story.workspace.base or run.base_of(story.repo),
        claim=claims.compile(tuple(globs), folding=folds_case(repository.top)),
    )

"""A worker's own clone of a coordinator's repository: made once, kept, and brought up to date by bundles."""

import re
import secrets
import shutil
from pathlib import Path

from isolation.git.clones.travel import check_out_base, commits_here, set_branch, take_travel_bundle
from isolation.git.clones.uncommitted import forget_uncommitted, keep_uncommitted, uncommitted_of
from isolation.git.repository import Repository, init_repository
from isolation.paths import worktree_path
from isolation.worktree.earlier import set_branch_aside
from isolation.worktree.removal import close_path
from runner.core.model import StoryId
from runner.core.text.names import branch_of
from runner.remote.cluster.wire.messages import ClusterError, Put, Start

_KEY = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[0-9a-f]{16}\.bundle")


class Clone:
    """The clone of one repository below the folder of a worker."""

    def __init__(self, folder: Path, key: str) -> None:
        if not _KEY.fullmatch(key):
            raise ClusterError(f"'{key}' names no repository")
        self.folder = folder / key
        self.incoming = self.folder / "incoming"
        self._path = self.folder / "repo"

    def open(self) -> Repository:
        """Return the clone; an empty one is made at first, and has its name once it is whole."""
        if self._path.is_dir():
            return Repository.open(self._path)
        if shutil.which("git") is None:
            raise ClusterError("git is not installed there, or not on its PATH", hint="install git there.")
        making = self.folder / f"making-{secrets.token_hex(8)}"
        init_repository(making)
        making.rename(self._path)
        return Repository.open(self._path)

    def have(self) -> tuple[str, ...]:
        """Return the commits that a bundle need not bring."""
        return commits_here(self.open())

    def put(self, part: Put) -> None:
        """Store a part of a bundle."""
        path = self._bundle(part.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(part.offset)
            file.write(part.data)

    def take(self, name: str) -> None:
        """Take over what a bundle brought; one that is gone was taken over before."""
        path = self._bundle(name)
        if path.exists():
            take_travel_bundle(self.open(), path)
            path.unlink()

    def begin(self, base: str, identity: tuple[str, str] | None) -> Repository:
        """Make the clone ready for a run from this commit, and have commits bear the user's name."""
        repository = self.open()
        check_out_base(repository, base)
        for key, value in zip(("user.name", "user.email"), identity or (), strict=False):
            repository.run("config", key, value)
        return repository

    def make_room(self, repository: Repository, root: Path, story_id: StoryId, start: Start) -> None:
        """Bring the branches to where the coordinator has them; what is in the way is moved aside."""
        for branch, tip in start.branches.items():
            set_branch(repository, branch, tip)
        branch, path = branch_of(story_id), worktree_path(root, story_id)
        if path.exists():
            close_path(repository, path, branch)
        here = repository.branch_tip(branch)
        if path.exists() or here not in {None, start.tip}:
            set_branch_aside(repository, branch, path if path.exists() else None)
        if start.tip:
            set_branch(repository, branch, start.tip)
        if start.left:
            keep_uncommitted(repository, story_id, start.left)
        elif left := uncommitted_of(repository, story_id):
            forget_uncommitted(repository, story_id, left)

    def _bundle(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ClusterError(f"'{name}' names no bundle")
        return self.incoming / name

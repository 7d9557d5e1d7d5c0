"""A place for objects that are not kept: trial merges and snapshots of working trees.

Git reads the repository's own objects from there and writes new ones to a temporary folder, so that the
repository does not grow, whatever is tried.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from isolation.errors import GitCommandError
from isolation.git.repository import GitOutput, Repository

_STAGE = ("-c", "advice.addEmbeddedRepo=false", "add", "--all")
_SPARSE_GIT = (2, 34)
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  a folder of its own is made there
_MEMORY_BYTES = 256 << 20
_LARGE_BYTES = 16 << 20
# The same files on the same commit are the same snapshot, so that what is known about it is found again.
_WHO = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "snapshot"), ("EMAIL", "snapshot@localhost"), ("DATE", "@0 +0000"))
}


class Scratch:
    """Runs git in a repository, with new objects in a folder of its own; those of merges in memory."""

    def __init__(self, repository: Repository, folder: Path, memory: Path) -> None:
        self.repository = repository
        self._folder = folder
        own = str(repository.common_dir / "objects")
        snapshots, merges = (str(place / "objects") for place in (folder, memory))
        self._env = _objects(snapshots, own)
        self._merge_env = _objects(merges, snapshots, own)

    def run(
        self,
        *args: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: str | None = None,
        check: bool = True,
    ) -> GitOutput:
        """Run one git command that may write objects."""
        data = None if stdin is None else stdin.encode(errors="surrogateescape")
        return self.repository.run(*args, cwd=cwd, check=check, env={**self._env, **(env or {})}, stdin=data)

    def merge(self, *args: str, stdin: str | None = None) -> GitOutput:
        """Run `merge-tree`, which writes some files for each merge that are never read."""
        return self.run("-c", "core.looseCompression=0", *args, env=self._merge_env, stdin=stdin, check=False)

    def snapshot(self, worktree: Path) -> tuple[str, bool]:
        """Return a commit of a worktree's files as they are now, and whether it has more than HEAD.

        The worktree's own index is copied, never locked or written. Large files stay as they were committed:
        they are hardly ever merged, and would be copied each time. What git cannot stage, such as an embedded
        repository, leaves HEAD as the answer.
        """
        asked = ("rev-parse", "HEAD^{commit}", "HEAD^{tree}", "--git-path", "index")
        head, tree, *_, place = self.repository.run(*asked, cwd=worktree).stdout.splitlines()
        index = self._folder / "index"
        index.unlink(missing_ok=True)
        env = {"GIT_INDEX_FILE": str(index)}
        try:
            shutil.copyfile(worktree / place, index)
        except FileNotFoundError:
            self.run("read-tree", "HEAD", cwd=worktree, env=env)
        sparse = ("--sparse",) if self.repository.version >= _SPARSE_GIT else ()
        with suppress(GitCommandError):
            large = (f":(exclude,literal){path}" for path in self._large(worktree, env))
            self.run(*_STAGE, *sparse, "--", ".", *large, cwd=worktree, env=env)
            now = self.run("write-tree", cwd=worktree, env=env).stdout.strip()
            if now != tree:
                made = self.run("commit-tree", now, "-p", head, "-m", "snapshot", env=_WHO)
                return made.stdout.strip(), True
        return head, False

    def _large(self, worktree: Path, env: dict[str, str]) -> list[str]:
        """Return the changed files that are too large to be looked at."""
        asked = ("ls-files", "-z", "--others", "--modified", "--exclude-standard")
        found = []
        for path in self.run(*asked, cwd=worktree, env=env).fields():
            with suppress(OSError):
                if (worktree / path).lstat().st_size > _LARGE_BYTES:
                    found.append(path)
        return found


def _objects(place: str, *alternates: str) -> dict[str, str]:
    Path(place).mkdir(exist_ok=True)
    return {"GIT_OBJECT_DIRECTORY": place, "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(alternates)}


def _memory() -> str | None:
    """Return a folder in memory, if one has room: on a disk merges take several times longer."""
    try:
        room = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return None
    large = room.f_bavail * room.f_frsize >= _MEMORY_BYTES
    return _SHARED_MEMORY if large and os.access(_SHARED_MEMORY, os.W_OK) else None


@contextmanager
def scratch(repository: Repository) -> Iterator[Scratch]:
    """Yield a scratch place, which is gone afterwards."""
    folder = partial(TemporaryDirectory, prefix="autopilot-forecast-", ignore_cleanup_errors=True)
    with folder() as snapshots, folder(dir=_memory()) as merges:
        yield Scratch(repository, Path(snapshots), Path(merges))

"""The index of a checkout, held against every other git command while its branch moves.

Git takes `index.lock` before it changes an index. Holding that file makes other commands fail instead of
committing old files onto the moved branch. The new index is made in a file beside it and put in place by a
rename, so that it is whole at every moment. A lock that a killed process of ours left is recognized by its
content and removed by the next landing; the caller holds the lease, so no other process of ours is at it.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isolation.errors import TargetError
from isolation.files.disk import sync_disk, sync_folder
from isolation.git.repository import GitOutput, Repository, failure
from isolation.paths import own_git_dir

_MARK = b"autopilot-multi is moving this branch\n"
_COPY = "index.autopilot"
_LOCK = "index.lock"
_PATIENCE = 10.0
_PAUSE = 0.005


class HeldIndex:
    """A held index; `run` works on a copy of it, `follow` puts the copy in place."""

    def __init__(self, repository: Repository, checkout: Path, git_dir: Path) -> None:
        self.checkout = checkout
        self._repository = repository
        self._index = git_dir / "index"
        self._copy = git_dir / _COPY

    def run(self, *args: str, stdin: bytes | None = None, check: bool = True) -> GitOutput:
        """Run a git command that changes the copy of the index, and perhaps files."""
        if not self._copy.exists() and self._index.exists():
            shutil.copy2(self._index, self._copy)
        env = {"GIT_INDEX_FILE": str(self._copy)}
        output = self._repository.run(*args, cwd=self.checkout, env=env, stdin=stdin, check=False)
        # A refresh exits with 1 if files differ, which is expected.
        if check and output.returncode != 0:
            raise failure(args, output)
        return output

    def follow(self, old: str, new: str) -> None:
        """Bring index and files from one commit to another; the user's own changes stay."""
        # Without a refresh, a file that was only touched would count as changed.
        self.run("update-index", "-q", "--refresh", check=False)
        output = self.run("read-tree", "-m", "-u", old, new, check=False)
        if output.returncode != 0:
            self.drop()
            raise TargetError(
                f"{self.checkout} could not follow: {' '.join(output.stderr.split())[:300]}",
                hint="commit or stash your changes there, then try again.",
            )
        # After a power failure the index must not list files as written that are empty on the disk.
        sync_disk(self.checkout)
        if self._copy.stat().st_dev != self.checkout.stat().st_dev:
            sync_disk(self._copy.parent)
        self._copy.replace(self._index)
        sync_folder(self._index.parent)

    def release(self) -> None:
        """Let other git commands change the index again."""
        self.drop()
        self._index.with_name(_LOCK).unlink(missing_ok=True)

    def drop(self) -> None:
        """Forget the copy."""
        for suffix in ("", ".lock", ".mark"):
            self._copy.with_name(f"{_COPY}{suffix}").unlink(missing_ok=True)


@contextmanager
def hold_index(repository: Repository, checkout: Path) -> Iterator[HeldIndex]:
    """Hold the index of a checkout; another git command that holds it is waited for."""
    held = take_index(repository, checkout)
    try:
        yield held
    finally:
        held.release()


def take_index(repository: Repository, checkout: Path) -> HeldIndex:
    """Hold the index of a checkout until its `release`."""
    git_dir = own_git_dir(checkout)
    if git_dir is None:
        raise TargetError(f"{checkout} is no checkout any more", hint="try again.")
    _acquire(git_dir / _LOCK)
    held = HeldIndex(repository, checkout, git_dir)
    held.drop()  # of a process that was killed
    return held


def _acquire(lock: Path) -> None:
    ours = lock.with_name(f"{_COPY}.mark")
    ours.write_bytes(_MARK)
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            # A link appears with its content, which a later landing recognizes, or not at all.
            os.link(ours, lock)
        except FileExistsError:
            if time.monotonic() > deadline:
                raise TargetError(
                    f"another git command holds {lock}",
                    hint="wait until it has ended; if none is running, remove that file, then try again.",
                ) from None
            time.sleep(_PAUSE)
            continue
        return


def release_stale(checkout: Path) -> None:
    """Remove the lock of a process of ours that was killed. The caller holds the lease."""
    git_dir = own_git_dir(checkout)
    lock = git_dir / _LOCK if git_dir is not None else None
    try:
        if lock is not None and lock.read_bytes() == _MARK:
            lock.unlink()
    except FileNotFoundError:
        return

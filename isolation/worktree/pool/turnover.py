"""The small tree of a finished story becomes that of a story that waits, within one run and without git.

A checkout and a deletion of a hundred files take longer than all else in a small story. The tree differs from
a new checkout only in what its story has done, and the file system tells what that is: every change leaves a
newer change time on the file, which no program can set, and a walk finds every other name.

Invariants:

- A tree is taken over only when nothing in it would be lost, as for a removal.
- What differs from its checkout is deleted, or written again by git. What is unusual is not taken over.
- It is given to a story only after a look whether any process has something in it open, begun after its
  sessions had ended.
- It has no seal: what a killed run leaves is removed by the next one. No more are kept than stories wait.
"""

import os
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import IsolationError
from isolation.files.deletion import delete_tree
from isolation.files.disk import replace_file
from isolation.files.lookups import is_folder, is_link, is_there
from isolation.files.plain import LONGEST_POINTER, read_plain
from isolation.git.checkout import admin_dir
from isolation.git.direct.index_file import distrust, entries_of, identity_of, is_plain, summarize
from isolation.git.direct.tree_look import TreeLook, compare_indexes, compare_tree, is_small, settled
from isolation.git.plain.content import settings_of
from isolation.git.repository import Repository
from isolation.model import WorkspaceRequest
from isolation.paths import EXCHANGE
from isolation.worktree.pool.claim import Spare, is_intact
from isolation.worktree.pool.inspection import Walked, held_inodes, walk
from isolation.worktree.pool.making import move_to_pool, reset_admin, retire
from isolation.worktree.pool.seals import Seal, umask
from isolation.worktree.power_loss import UNSETTLED

_MOST_CHANGED = 50
"""Up to how many changes a tree is brought back; with more of them, a new checkout costs as much."""
_ATTRIBUTES = ".gitattributes"

Surroundings = tuple[object, ...]


class _Origin(Struct, frozen=True, kw_only=True):
    """The checkout that a tree began with: its commit, git's index, and what decided how it was written."""

    commit: str
    index: bytes
    surroundings: Surroundings


class _Ready(Struct, frozen=True, kw_only=True):
    """A tree that is as it began. It is `free` once no process was found to have anything in it open."""

    seal: Seal
    origin: _Origin
    walked: Walked
    free: bool = False


class Turnover:
    """The trees of one run that go from story to story.

    A look whether any process has something in a tree open serves `batch` trees at least: it takes a quarter
    of a checkout, however many they are. Until so many are ready, stories get trees of their own. It need not
    ask `own` processes: this program and its keepers, but no session.
    """

    def __init__(
        self,
        repository: Repository,
        run_id: str,
        *,
        batch: int = 1,
        own: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._repository = repository
        self._run_id = run_id
        self._batch = batch
        self._own = own
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._waiting = 0
        self._origins: dict[Path, _Origin] = {}
        self._ready: list[_Ready] = []

    def expect(self, stories: int) -> None:
        """Say how many stories are still to get a tree."""
        with self._lock:
            self._waiting = stories

    def remember(self, path: Path, commit: str) -> None:
        """Remember a new checkout, in which nothing has run yet, if it may be of use again. Blocks."""
        git_dir = admin_dir(self._repository, path)
        if git_dir is None or not self._is_wanted():
            return
        with suppress(OSError):
            found = settled(git_dir / "index")
            data = (git_dir / "index").read_bytes() if is_small(found) else b""
            if data and is_plain(data, len(commit) // 2):
                now = surroundings_now(self._repository)
                with self._lock:
                    self._origins[path] = _Origin(commit=commit, index=data, surroundings=now)

    def accept(self, path: Path, tip: str, index: bytes = b"") -> bool:
        """Take over the tree of a story in which nothing would be lost; False if it is not wanted. Blocks.

        If there is an `index`, the tree was just found to hold what that names, and nothing else.
        """
        with self._lock:
            origin = self._origins.pop(path, None)
        if origin is None or not self._is_wanted():
            return False
        git_dir = admin_dir(self._repository, path)
        if git_dir is None or is_there(f"{git_dir}/{UNSETTLED}"):
            return False
        if origin.surroundings != surroundings_now(self._repository):
            return False
        hash_size = len(tip) // 2
        known = compare_indexes(origin.index, index, hash_size) if index else None
        look = known or compare_tree(origin.index, path, hash_size)
        if look is None or not _can_be_undone(look):
            return False
        spare = move_to_pool(self._repository, path, git_dir, origin.commit)
        if spare is None:
            return False
        made = self._brought_back(spare, git_dir, origin, look)
        if made is None:
            retire(self._repository, spare)
        else:
            with self._lock:
                self._ready.append(made)
        return True

    def take(self, request: WorkspaceRequest) -> Spare | None:
        """Take a tree for a story that has none; None if there is none that is certain. Blocks."""
        with self._lock:
            self._waiting -= 1
        if request.needs_parents or len(request.parents) != 1 or os.path.lexists(request.path):
            return None
        if self._repository.has_checkout_hook:  # the user has added one since the run began
            return None
        while (ready := self._pop(request.parents[0])) is not None:
            seal, origin = ready.seal, ready.origin
            same = origin.surroundings == surroundings_now(self._repository)
            if ready.free and same and is_intact(self._repository, seal, seal.surroundings):
                with self._lock:
                    self._origins[request.path] = origin
                return Spare(seal=seal, hooked=False, small=True)
            retire(self._repository, Path(seal.path))
        return None

    def drop(self, spare: Spare) -> None:
        """Remove a tree that was taken and not used. Blocks."""
        retire(self._repository, spare.path)

    def finish(self) -> None:
        """Remove what is left. Blocks."""
        with self._lock:
            left, self._ready = self._ready, []
        for ready in left:
            retire(self._repository, Path(ready.seal.path))

    def _is_wanted(self) -> bool:
        with self._lock:
            return len(self._ready) < self._waiting

    def _pop(self, commit: str) -> _Ready | None:
        """Take a tree at a commit; one that is not free after a look is still the caller's to remove."""
        with self._looking:
            with self._lock:
                found = [each for each in self._ready if each.seal.commit == commit]
                unknown = [each for each in self._ready if not each.free]
            if not any(each.free for each in found):
                if not found or len(unknown) < self._batch:
                    return None
                self._look(unknown)
            with self._lock:
                found = [each for each in self._ready if each.seal.commit == commit]
                best = next((each for each in found if each.free), next(iter(found), None))
                if best is not None:
                    self._ready.remove(best)
                return best

    def _look(self, trees: Sequence[_Ready]) -> None:
        held = held_inodes(without=self._own())
        for each in trees:
            if not any((each.walked.device, inode) in held for inode in each.walked.inodes):
                with self._lock:
                    self._ready[self._ready.index(each)] = replace(each, free=True)

    def _brought_back(self, tree: Path, git_dir: Path, origin: _Origin, look: TreeLook) -> _Ready | None:
        """Bring a tree back to how it began; None if that is not possible."""
        hash_size = len(origin.commit) // 2
        try:
            if read_plain(f"{git_dir}/commondir", LONGEST_POINTER) != b"../..\n":
                return None
            for name in (*look.unknown, EXCHANGE):
                _delete(tree, name)
            reset_admin(git_dir)
            index = git_dir / "index"
            replace_file(index, distrusted(origin.index, look.changed, hash_size), durable=False)
            if look.changed:
                written = self._written_again(tree, index, look.changed, hash_size)
                origin = replace(origin, index=written)
            summary = summarize(index, hash_size)
            walked = walk(tree, summary)
        except (IsolationError, OSError, ValueError):
            return None
        if isinstance(walked, str):
            return None
        seal = Seal(
            name=git_dir.name,
            path=str(tree),
            commit=origin.commit,
            run_id=self._run_id,
            surroundings="",
            index=identity_of(index),
            guarded=True,
            recent=summary.recent,
        )
        return _Ready(seal=seal, origin=origin, walked=walked)

    def _written_again(self, tree: Path, index: Path, names: Sequence[str], hash_size: int) -> bytes:
        """Have git write some files as in a checkout, and return the index; raises if they do not fit it."""
        stdin = "".join(f"{name}\0" for name in names).encode(errors="surrogateescape")
        args = ("checkout-index", "--force", "--index", "-z", "--stdin")
        self._repository.run(*args, cwd=tree, stdin=stdin)
        settled(index)
        data = index.read_bytes()
        look = compare_tree(data, tree, hash_size)
        if look is None or look.changed or look.unknown:
            raise ValueError("git has not written all of it")
        return data


def distrusted(index: bytes, names: Sequence[str], hash_size: int) -> bytes:
    """Return an index by which git writes these files again, however little of them has changed."""
    wanted = set(map(os.fsencode, names))
    positions = (at for at, name in entries_of(index, hash_size) if name in wanted)
    return distrust(index, tuple(positions), hash_size) if wanted else index


def can_turn_over(repository: Repository) -> bool:
    """Whether trees can go from story to story here: HEAD has to be a readable file, and no hook looks on."""
    return not (repository.common_dir / "reftable").exists() and not repository.has_checkout_hook


def surroundings_now(repository: Repository) -> Surroundings:
    """Return what decides how git writes the files of a commit; if it differs, that has changed."""
    settings, common = settings_of(repository), repository.common_dir
    others = (*map(str, settings.attributes), f"{common}/info/sparse-checkout", f"{common}/config.worktree")
    return (settings.seen, umask(), *(_content(file) for file in others))


def _content(file: str) -> bytes | None:
    try:
        return read_plain(file, sys.maxsize)
    except OSError:
        return None


def _can_be_undone(look: TreeLook) -> bool:
    """Whether it is little that has changed, and nothing that decides how other files are written."""
    names = (*look.changed, *look.unknown)
    if len(names) > _MOST_CHANGED:
        return False
    return not any(name.rstrip("/").rpartition("/")[2] == _ATTRIBUTES for name in names)


def _delete(tree: Path, name: str) -> None:
    """Delete a file or folder of a tree, and the folders above it that are empty then."""
    top = f"{tree}"
    path = f"{top}/{name}"
    if is_folder(path) and not is_link(path):
        delete_tree(Path(path))
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108  text
    with suppress(OSError):  # not empty
        while (path := path.rpartition("/")[0]) != top:
            os.rmdir(path)  # noqa: PTH106  text

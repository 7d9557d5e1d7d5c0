"""The pool of a run: worktrees that are ready for stories, made and recycled while stories work.

It outlives the run: what is sealed when a run ends is there for the next one, which looks at every file of
it once more. It belongs to the run that holds the lease. Whatever is not certain is made the plain way.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from isolation.git.contained.object_store import drop_store
from isolation.git.direct.index_file import identity_of, summarize
from isolation.git.repository import Repository, offload
from isolation.guard.submodules import DOT_GIT, POINTER
from isolation.model import WorkspaceRequest
from isolation.worktree.pool.ahead import was_looked_at
from isolation.worktree.pool.claim import Spare, is_intact, is_unchanged
from isolation.worktree.pool.early import EarlyTree, claim_early, drop_early, early_tree
from isolation.worktree.pool.making import (
    changes_attributes,
    give,
    make_spare,
    recycle,
    retire,
    sweep_half_made,
)
from isolation.worktree.pool.preparation import Preparation, ignored_files, inputs_differ
from isolation.worktree.pool.seals import (
    Seal,
    by_usefulness,
    claim_seal,
    count_seals,
    forget_gone,
    load_seals,
    remember_origin,
    surroundings_of,
    write_seal,
)
from isolation.worktree.pool.turnover import Turnover

if TYPE_CHECKING:
    import trio

LEAST_INDEX = 200_000
"""How large the index of a repository is, in bytes, for which `auto` keeps spares: about 2,000 files."""

ROOM = 3
"""How many times the size of a tree must be free on the disk to make another one."""

PAUSE_SECONDS = 0.5


@dataclass(kw_only=True, eq=False)
class Pool:
    """The spares of a repository, as one run uses them. `size` is how many there may be.

    With `trims` those beyond it are removed when the run begins; otherwise only no more are made.
    `guarded` says that sessions of this run cannot write to worktrees that are not theirs. A `preparation`
    is a command that runs in spares before they are claimed. Where trees are too small for spares, `turnover`
    has those of finished stories for the next ones.
    """

    repository: Repository
    root: Path
    run_id: str
    size: int
    guarded: bool
    trims: bool = False
    preparation: Preparation | None = None
    turnover: Turnover | None = None
    _given: list[Path] = field(default_factory=list)
    _lent: int = 0
    _at_work: int = 0
    _failed: int = 0
    _unprepared: bool = False  # the command is at work in a spare, or has failed in one
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tree: tuple[tuple[int, ...], int] = ((), 0)  # the size of a tree, and the index that says so

    @property
    def is_used(self) -> bool:
        """Whether trees come from here, or go back here."""
        return bool(self.size or self.turnover)

    @property
    def has_spares(self) -> bool:
        """Whether there is any for which a story could wait."""
        return bool(self.size and count_seals(self.repository.common_dir))

    def begin(self) -> None:
        """Remove what a killed run left half made, and what is more than the settings allow. Blocks."""
        common = self.repository.common_dir
        forget_gone(common)
        seals = load_seals(common)
        for seal in seals[self.size :] if self.trims else ():
            if claim_seal(common, seal.name):
                retire(self.repository, Path(seal.path))
        if not (self.size and self.guarded):
            drop_early(common)
        early = early_tree(common)
        known = {Path(seal.path) for seal in load_seals(common)} | ({early.path} if early else set())
        sweep_half_made(self.repository, self.root, known)

    def claim_early(self, request: WorkspaceRequest) -> EarlyTree | None:
        """Take a tree for a story whose checkout was begun before the run; None without one."""
        if os.path.lexists(request.path):
            return None
        return claim_early(self.repository.common_dir, self.root, request.parents[0])

    def take(self, request: WorkspaceRequest) -> Spare | None:
        """Take a spare for a story that has no tree; None if there is none that is certain. Blocks."""
        if self.turnover is not None:
            return self.turnover.take(request)
        common, base = self.repository.common_dir, request.parents[0]
        seals = load_seals(common) if self.size and not os.path.lexists(request.path) else ()
        if not seals:
            return None
        surroundings = surroundings_of(self.repository)
        hooked = surroundings.hooks or (common / "hooks" / "post-checkout").exists()
        for seal in by_usefulness(seals, base, self.run_id):
            if not claim_seal(common, seal.name):
                continue
            if self._is_good(seal, base, surroundings.digest):
                return Spare(seal=seal, hooked=hooked)
            retire(self.repository, Path(seal.path))
        return None

    def _is_good(self, seal: Seal, base: str, surroundings: str) -> bool:
        if Path(seal.path).parent != self.root or not is_intact(self.repository, seal, surroundings):
            return False
        if seal.prepared and (self.preparation is None or seal.prepared != self.preparation.key):
            return False
        if changes_attributes(self.repository, seal.commit, base):
            return False
        known = seal.run_id == self.run_id and self.guarded
        thorough = not (seal.guarded and self.guarded)
        if known or (not thorough and was_looked_at(self.repository, seal)):
            return True
        return is_unchanged(self.repository, seal, thorough=thorough)

    def has_prepared(self, spare: Spare, tip: str) -> bool:
        """Whether nothing is left to prepare in a spare for a story that starts at `tip`. Blocks."""
        if self.preparation is None or not spare.seal.prepared:
            return False
        return not inputs_differ(self.repository, self.preparation.inputs, spare.seal.commit, tip)

    async def count_early(self, limiter: "trio.CapacityLimiter") -> None:
        """Have the checkout that was begun before the run take its places among those made at once."""
        import trio

        tree = early_tree(self.repository.common_dir)
        if tree is None:
            return

        async def hold() -> None:
            async with limiter:
                await offload(tree.filled.wait)

        async with trio.open_nursery() as nursery:
            for _ in range(tree.workers):
                nursery.start_soon(hold)

    def put_back(self, spare: Spare) -> None:
        """Return a spare that was taken and not used; one that was touched is removed. Blocks."""
        if self.turnover is not None:
            self.turnover.drop(spare)
            return
        if is_intact(self.repository, spare.seal, spare.seal.surroundings):
            write_seal(self.repository.common_dir, spare.seal)
        else:
            retire(self.repository, spare.path)

    def remember(self, request: WorkspaceRequest, commit: str) -> None:
        """Remember the tree of a story as it was checked out, so that it can be recycled. Blocks."""
        if self.turnover is not None:
            self.turnover.remember(request.path, commit)
            return
        with suppress(OSError):
            now = surroundings_of(self.repository).digest
            remember_origin(self.repository, request.path, commit, now)

    def accept(self, path: Path, tip: str, index: bytes = b"") -> bool:
        """Take over the tree of a story in which nothing would be lost; False if it is not wanted. Blocks.

        If it was just compared with git's `index`, and holds nothing else, that is known.
        """
        if self.turnover is not None:
            return self.turnover.accept(path, tip, index)
        with self._working():
            if self._missing() < 0:
                return False
            given = give(self.repository, path, tip)
            if given is not None:
                self._given.append(given)
        return given is not None

    async def keep(self, base: Callable[[], str], running: Callable[[], int | None]) -> None:
        """Recycle and make spares until cancelled, as many at once as there are cores.

        `running` is how many stories have a tree that may come back; None while one waits for its own.
        """
        import trio

        async def work() -> None:
            while True:
                await trio.sleep(PAUSE_SECONDS)
                while await self._recycle_one(base(), idle=True):
                    pass
                others = running()
                if others is not None:
                    # A story that has ended still has its tree for a moment, and gives it back.
                    others = max(others, self._lent)
                if others is not None and self._missing() > others and await offload(self._has_room):
                    await self._make_one(base(), others)
                if others is not None:
                    await self._prepare_one(base())

        async with trio.open_nursery() as nursery:
            for _ in range(os.cpu_count() or 1):
                nursery.start_soon(work)

    async def finish(self, base: str) -> None:
        """Recycle what was given and is not recycled yet; the next run finds it."""
        import trio

        await offload(drop_early, self.repository.common_dir)

        async def work() -> None:
            while await self._recycle_one(base, idle=False):
                pass

        async with trio.open_nursery() as nursery:
            for _ in range(os.cpu_count() or 1):
                nursery.start_soon(work)

    def _missing(self) -> int:
        return self.size - count_seals(self.repository.common_dir) - len(self._given) - self._at_work

    async def _recycle_one(self, base: str, *, idle: bool) -> bool:
        """Recycle one tree that was given; False if there is none."""
        import trio

        await trio.lowlevel.checkpoint()
        if not self._given:
            return False
        again = partial(recycle, guarded=self.guarded, idle=idle)
        with trio.CancelScope(shield=True), self._working():  # what was taken from the list is seen through
            await offload(again, self.repository, self._given.pop(), base, self.run_id)
        return True

    async def _make_one(self, base: str, others: int) -> None:
        make = partial(make_spare, guarded=self.guarded)
        with self._working():
            if self._missing() + 1 <= others:
                return  # another worker was first
            reason = await offload(make, self.repository, self.root, base, self.run_id)
            self._failed += bool(reason)

    async def _prepare_one(self, base: str) -> None:
        """Run the command in one spare that lacks it. If it fails, this run does not try again."""
        if self.preparation is None or self._unprepared:
            return
        self._unprepared = True
        seal = await offload(self._claim_unprepared, base)
        if seal is not None:
            path, ready = Path(seal.path), False
            try:
                with self._working():
                    ready = await self.preparation.run(path, seal.commit)
                    ready = ready and await offload(self._seal_prepared, seal, self.preparation.key)
            finally:
                if not ready:
                    self._given.append(path)  # to be recycled: what was left in it goes
            if not ready:
                return
        self._unprepared = False

    def _claim_unprepared(self, base: str) -> Seal | None:
        common = self.repository.common_dir
        for seal in load_seals(common):
            if seal.prepared or seal.commit != base or not claim_seal(common, seal.name):
                continue
            if self._is_good(seal, base, surroundings_of(self.repository).digest):
                return seal
            retire(self.repository, Path(seal.path))
        return None

    def _seal_prepared(self, seal: Seal, key: str) -> bool:
        """Seal a spare in which the command has run, unless it did more than to leave ignored files."""
        path = Path(seal.path)
        drop_store(self.repository.common_dir, path.name)
        for name in (DOT_GIT, POINTER):  # what showed the command its tree at the path of the checkout
            (self.repository.common_dir / "worktrees" / seal.name / name).unlink(missing_ok=True)
        ignored = ignored_files(self.repository, path)
        made = replace(seal, run_id=self.run_id, guarded=self.guarded, prepared=key, ignored=ignored)
        now = surroundings_of(self.repository).digest
        if not ignored or not is_intact(self.repository, made, now):
            return False
        if not is_unchanged(self.repository, made, thorough=not self.guarded):
            return False
        write_seal(self.repository.common_dir, made)
        return True

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Know that a story has a tree, or is about to, which may come back at its end."""
        with self._lock:
            self._lent += 1
        try:
            yield
        finally:
            with self._lock:
                self._lent -= 1

    @contextmanager
    def _working(self) -> Iterator[None]:
        with self._lock:
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1

    def _has_room(self) -> bool:
        """Whether the disk has ample room for another tree, and making them has not failed before."""
        if self._failed > 1:
            return False
        common = self.repository.common_dir
        try:
            now = identity_of(common / "index")
            if self._tree[0] != now:
                self._tree = (now, summarize(common / "index").size)
            size = self._tree[1]
            disk = os.statvfs(self.root if self.root.is_dir() else self.root.parent)
        except (OSError, ValueError):
            return False
        return disk.f_bavail * disk.f_frsize > ROOM * size


def size_of(repository: Repository, wanted: int | None, stories: int) -> int:
    """Return how many spares there may be; without a number as many as stories, where trees are large."""
    if (repository.common_dir / "reftable").exists():  # there HEAD is not a readable file
        return 0
    if wanted is not None:
        return wanted
    try:
        large = (repository.common_dir / "index").stat().st_size >= LEAST_INDEX
    except OSError:
        return 0
    return stories if large else 0

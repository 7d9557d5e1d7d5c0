"""What stories wrote into layers of their own over the shared tree: their own goes into it, the rest is kept.

At this level nothing that a story does outside its claim reaches the tree, so there is nothing to undo and
nobody to suspect: what a layer holds is its story's. A folder that a story owns with all that is in it is
not covered by the layer; other paths of its claim are brought over when a session has ended.

A layer that a crash left behind is settled before its story goes on. First foreign changes are kept, then
the story's own are brought over, then the layer is cleared; each of these can be repeated.
"""

import os
import shutil
import stat
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from isolation.claims.globs import Claim
from isolation.claims.owners import ANYBODY, Owners, ancestors
from isolation.errors import WorkspaceError
from isolation.files.deletion import delete_tree
from isolation.git.repository import Repository, offload
from isolation.kernel.overlay import ChangeKind, OverlayChange, overlay_changes
from isolation.paths import EXCHANGE
from isolation.shared_tree.findings import Finding, Watched
from isolation.shared_tree.quarantine import Foreign, What, keep
from isolation.shared_tree.snapshot import Sign, sign_of

_GRACE = 120.0


class Diversion:
    """The overlays of one run over one tree, with one folder in `overlays` for each story.

    `byproducts` is what agents leave behind by themselves: it is no work, so it is deleted with the overlay.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        run_id: str,
        claims: Mapping[str, Claim],
        open_to_all: Claim,
        overlays: Path,
        byproducts: Claim | None = None,
    ) -> None:
        self._repository = repository
        self._run_id = run_id
        self._owners = Owners({**claims, ANYBODY: open_to_all})
        self._byproducts = byproducts
        self._overlays = overlays
        self._top = repository.top

    @asynccontextmanager
    async def session(self, story_id: str) -> AsyncIterator[Watched]:
        """Settle what a session writes to its layer when it is over."""
        watched = Watched(findings=await offload(self._settle, story_id))
        try:
            yield watched
        finally:
            with trio.move_on_after(_GRACE, shield=True):
                watched.findings += await offload(self._settle, story_id)

    def _settle(self, story_id: str) -> tuple[Finding, ...]:
        scratch = self._overlays / story_id
        upper = scratch / "upper"
        if not upper.is_dir():
            return ()
        changes = [change for change in overlay_changes(upper) if not self._is_byproduct(change.path)]
        gone = list(self._gone(changes))
        mine = {change.path for change in changes if self._is_own(story_id, change.path)}
        foreign = [*self._foreign(upper, changes, mine), *self._foreign_losses(story_id, gone)]
        findings: tuple[Finding, ...] = ()
        if foreign:
            kept = keep(
                self._repository,
                upper,
                sorted(foreign, key=lambda change: change.path),
                run_id=self._run_id,
                story_ids=(story_id,),
                date=time.time(),
            )
            findings = (Finding(quarantine=kept, stayed=()),)
        try:
            self._take_away([path for path in gone if self._is_own(story_id, path)])
            self._bring_over(upper, changes, mine)
        except OSError as error:
            raise WorkspaceError(
                f"what story {story_id} wrote cannot be brought into the tree: {error}",
                hint=f"it is kept in {upper}",
            ) from error
        delete_tree(scratch)
        return findings

    def _is_byproduct(self, path: str) -> bool:
        return self._byproducts is not None and self._byproducts.owns(path)

    def _is_own(self, story_id: str, path: str) -> bool:
        return self._owners.of(path) in {story_id, ANYBODY}

    def _gone(self, changes: Sequence[OverlayChange]) -> Iterator[str]:
        """Name every entry of the tree that the layer takes away, all that is in a folder included."""
        written = {change.path for change in changes if change.kind is not ChangeKind.DELETED}
        for change in changes:
            below = sign_of(self._top / change.path)
            if below is None:
                continue
            hidden = change.replaced or (below.is_folder and change.kind is not ChangeKind.FOLDER)
            if change.kind is ChangeKind.DELETED:
                yield change.path
            if hidden and below.is_folder:
                yield from (path for path in _inside(self._top, change.path) if path not in written)

    def _foreign(self, upper: Path, changes: Sequence[OverlayChange], mine: set[str]) -> Iterator[Foreign]:
        """Say what the layer adds or changes that is not the story's."""
        above = {folder for change in changes for folder in ancestors(change.path)}
        for change in changes:
            if change.path in mine or change.kind is ChangeKind.DELETED:
                continue
            before, after = sign_of(self._top / change.path), sign_of(upper / change.path)
            if change.kind is ChangeKind.FOLDER and change.path in above and before is None:
                continue  # it is there for what is in it, which is told by itself
            what = _what(self._top / change.path, before, upper / change.path, after)
            if what is not None:
                yield Foreign(path=change.path, what=what, before=before, after=after)

    def _foreign_losses(self, story_id: str, gone: Sequence[str]) -> Iterator[Foreign]:
        own = {path for path in gone if self._is_own(story_id, path)}
        carrying = {folder for path in own for folder in ancestors(path)}
        for path in gone:
            before = sign_of(self._top / path)
            if path not in own and before is not None and not (before.is_folder and path in carrying):
                yield Foreign(path=path, what=What.DELETED, before=before)

    def _take_away(self, paths: Sequence[str]) -> None:
        for path in sorted(paths, reverse=True):
            place = self._top / path
            self._require_real(place)
            sign = sign_of(place)
            if sign is not None and sign.is_folder:
                if not any(place.iterdir()):
                    place.rmdir()
            elif sign is not None:
                place.unlink()

    def _bring_over(self, upper: Path, changes: Sequence[OverlayChange], mine: set[str]) -> None:
        """Put the story's own entries into the tree, folders before what is in them."""
        for change in changes:
            if change.path not in mine or change.kind in {ChangeKind.DELETED, ChangeKind.OTHER}:
                continue
            source, place = upper / change.path, self._top / change.path
            self._require_real(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            below = sign_of(place)
            if change.kind is ChangeKind.FOLDER:
                if below is not None and not below.is_folder:
                    place.unlink()
                place.mkdir(exist_ok=True)
                place.chmod(change.mode)
            else:
                self._replace(source, place, below)

    def _replace(self, source: Path, place: Path, below: Sign | None) -> None:
        """Put one file or link into its place in one step."""
        if below is not None and below.is_folder:
            place.rmdir()
        aside = self._top / EXCHANGE / f"over-{os.getpid()}-{source.stat(follow_symlinks=False).st_ino}"
        aside.unlink(missing_ok=True)
        shutil.copy2(source, aside, follow_symlinks=False)
        aside.replace(place)

    def _require_real(self, place: Path) -> None:
        """Refuse to write through a link that stands in the tree where the layer has a folder."""
        if Path(os.path.realpath(place.parent)) != place.parent:
            raise WorkspaceError(
                f"{place.parent} leads elsewhere, so what was written there is not brought over",
                hint="the layer of the story keeps it",
            )


def _inside(top: Path, folder: str) -> Iterator[str]:
    """Name every entry below a folder of the tree."""
    for found, folders, files in os.walk(top / folder):
        for name in (*folders, *files):
            yield os.path.relpath(Path(found, name), top)


def _what(place: Path, before: Sign | None, source: Path, after: Sign | None) -> What | None:
    """Compare an entry of the layer with the tree's; None when it was only copied."""
    if before is None or after is None:
        return What.CREATED if before is None else None
    if stat.S_IFMT(before.mode) != stat.S_IFMT(after.mode) or _differ(place, before, source, after):
        return What.CHANGED
    if before.mode != after.mode:
        return What.MODE
    return What.TIMES if before.mtime_ns != after.mtime_ns else None


def _differ(place: Path, before: Sign, source: Path, after: Sign) -> bool:
    if after.is_link:
        return place.readlink() != source.readlink()
    if not after.is_file:
        return False
    return before.size != after.size or place.read_bytes() != source.read_bytes()

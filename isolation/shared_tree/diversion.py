"""What stories wrote into their overlays: their own paths are copied to the tree, the rest is quarantined.

At this level nothing that a story does outside its claim reaches the tree, so nothing has to be undone and
it is certain who wrote what: an overlay belongs to one story. A folder that a story owns with all that is in
it is not covered by the overlay; other paths of its claim are copied when a session has ended.

An overlay that a crash left behind is settled before its story continues. First foreign changes are
quarantined, then the story's own are copied, then the overlay is deleted; each of these can be repeated.
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
from isolation.files.lookups import is_folder
from isolation.git.repository import Repository, offload
from isolation.kernel.overlay import ChangeKind, OverlayChange, overlay_changes
from isolation.paths import EXCHANGE
from isolation.shared_tree.findings import Finding, Watched
from isolation.shared_tree.quarantine import ChangeEffect, ForeignChange, quarantine_changes
from isolation.shared_tree.snapshot import Fingerprint, fingerprint_of

_GRACE = 120.0


class Diversion:
    """The overlays of one run over one tree, with one folder in `overlays` for each story.

    `byproducts` is what agents leave behind by themselves: it is not work, so it is deleted with the overlay.
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

    def admit(self, story_id: str, claim: Claim) -> None:
        """Take the claim of a story that joins the run."""
        self._owners.put(story_id, claim)

    @asynccontextmanager
    async def session(self, story_id: str) -> AsyncIterator[Watched]:
        """Settle the session's overlay when it is over."""
        # What a crash left in the overlay is settled first, so that it is not taken for this session's.
        # One look takes less than to wait for a thread.
        left = await offload(self._settle, story_id) if is_folder(self._upper(story_id)) else ()
        watched = Watched(findings=left)
        try:
            yield watched
        finally:
            with trio.move_on_after(_GRACE, shield=True):
                watched.findings += await offload(self._settle, story_id)

    def _settle(self, story_id: str) -> tuple[Finding, ...]:
        upper = self._upper(story_id)
        if not is_folder(upper):
            return ()
        changes = [change for change in overlay_changes(upper) if not self._is_byproduct(change.path)]
        gone = list(self._deleted_paths(changes))
        mine = {change.path for change in changes if self._is_own(story_id, change.path)}
        foreign = [*self._foreign(upper, changes, mine), *self._foreign_losses(story_id, gone)]
        findings: tuple[Finding, ...] = ()
        # Quarantine before the copy and the copy before the deletion: a crash in between loses nothing.
        if foreign:
            kept = quarantine_changes(
                self._repository,
                upper,
                sorted(foreign, key=lambda change: change.path),
                run_id=self._run_id,
                story_ids=(story_id,),
                date=time.time(),
            )
            findings = (Finding(quarantine=kept, stayed=()),)
        try:
            self._remove([path for path in gone if self._is_own(story_id, path)])
            self._copy_own(upper, changes, mine)
        except OSError as error:
            raise WorkspaceError(
                f"what story {story_id} wrote cannot be copied into the tree: {error}",
                hint=f"it is kept in {upper}",
            ) from error
        delete_tree(upper.parent)
        return findings

    def _upper(self, story_id: str) -> Path:
        """Return the folder with what a story has written into its overlay."""
        return self._overlays / story_id / "upper"

    def _is_byproduct(self, path: str) -> bool:
        return self._byproducts is not None and self._byproducts.owns(path)

    def _is_own(self, story_id: str, path: str) -> bool:
        return self._owners.of(path, working=story_id) in {story_id, ANYBODY}

    def _deleted_paths(self, changes: Sequence[OverlayChange]) -> Iterator[str]:
        """Yield every entry of the tree that the overlay deletes, including all that is in a folder."""
        written = {change.path for change in changes if change.kind is not ChangeKind.DELETED}
        for change in changes:
            below = fingerprint_of(self._top / change.path)
            if below is None:
                continue
            hidden = change.replaced or (below.is_folder and change.kind is not ChangeKind.FOLDER)
            if change.kind is ChangeKind.DELETED:
                yield change.path
            if hidden and below.is_folder:
                yield from (path for path in _inside(self._top, change.path) if path not in written)

    def _foreign(
        self, upper: Path, changes: Sequence[OverlayChange], mine: set[str]
    ) -> Iterator[ForeignChange]:
        """Yield what the overlay adds or changes outside the claim."""
        above = {folder for change in changes for folder in ancestors(change.path)}
        for change in changes:
            if change.path in mine or change.kind is ChangeKind.DELETED:
                continue
            before, after = fingerprint_of(self._top / change.path), fingerprint_of(upper / change.path)
            if change.kind is ChangeKind.FOLDER and change.path in above and before is None:
                continue  # it only holds entries that are reported themselves
            what = _what(self._top / change.path, before, upper / change.path, after)
            if what is not None:
                yield ForeignChange(path=change.path, what=what, before=before, after=after)

    def _foreign_losses(self, story_id: str, gone: Sequence[str]) -> Iterator[ForeignChange]:
        own = {path for path in gone if self._is_own(story_id, path)}
        carrying = {folder for path in own for folder in ancestors(path)}
        for path in gone:
            before = fingerprint_of(self._top / path)
            if path not in own and before is not None and not (before.is_folder and path in carrying):
                yield ForeignChange(path=path, what=ChangeEffect.DELETED, before=before)

    def _remove(self, paths: Sequence[str]) -> None:
        for path in sorted(paths, reverse=True):
            place = self._top / path
            self._require_real(place)
            fingerprint = fingerprint_of(place)
            if fingerprint is not None and fingerprint.is_folder:
                if not any(place.iterdir()):
                    place.rmdir()
            elif fingerprint is not None:
                place.unlink()

    def _copy_own(self, upper: Path, changes: Sequence[OverlayChange], mine: set[str]) -> None:
        """Copy the story's own entries into the tree, folders before what is in them."""
        for change in changes:
            if change.path not in mine or change.kind in {ChangeKind.DELETED, ChangeKind.OTHER}:
                continue
            source, place = upper / change.path, self._top / change.path
            self._require_real(place)
            if not is_folder(place.parent):
                place.parent.mkdir(parents=True, exist_ok=True)
            below = fingerprint_of(place)
            if change.kind is ChangeKind.FOLDER:
                if below is not None and not below.is_folder:
                    place.unlink()
                place.mkdir(exist_ok=True)
                place.chmod(change.mode)
            else:
                self._replace(source, place, below)

    def _replace(self, source: Path, place: Path, below: Fingerprint | None) -> None:
        """Replace one file or link in a single step, so that readers never see a part of it."""
        if below is not None and below.is_folder:
            place.rmdir()
        aside = self._top / EXCHANGE / f"over-{os.getpid()}-{source.stat(follow_symlinks=False).st_ino}"
        aside.unlink(missing_ok=True)
        shutil.copy2(source, aside, follow_symlinks=False)
        aside.replace(place)

    def _require_real(self, place: Path) -> None:
        """Refuse to write through a link that the tree has where the overlay has a folder."""
        if os.path.realpath(place.parent) != str(place.parent):
            raise WorkspaceError(
                f"{place.parent} leads elsewhere, so what was written there is not copied",
                hint="it stays in the story's overlay",
            )


def _inside(top: Path, folder: str) -> Iterator[str]:
    """Yield every entry below a folder of the tree."""
    for found, folders, files in os.walk(top / folder):
        for name in (*folders, *files):
            yield os.path.relpath(Path(found, name), top)


def _what(
    place: Path, before: Fingerprint | None, source: Path, after: Fingerprint | None
) -> ChangeEffect | None:
    """Compare an entry of the overlay with the tree's; None if it was only copied up."""
    if before is None or after is None:
        return ChangeEffect.CREATED if before is None else None
    if stat.S_IFMT(before.mode) != stat.S_IFMT(after.mode) or _differ(place, before, source, after):
        return ChangeEffect.CHANGED
    if before.mode != after.mode:
        return ChangeEffect.MODE
    return ChangeEffect.TIMES if before.mtime_ns != after.mtime_ns else None


def _differ(place: Path, before: Fingerprint, source: Path, after: Fingerprint) -> bool:
    if after.is_link:
        return place.readlink() != source.readlink()
    if not after.is_file:
        return False
    return before.size != after.size or place.read_bytes() != source.read_bytes()

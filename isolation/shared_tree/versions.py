"""What running stories' files held while another story was at work, too, where nothing prevents its writes.

A story may then write to a file that its owner is editing, and nothing tells who wrote which version. So
whenever a session begins or ends, the changed files of the stories that are still at work are stored. If
such a file is different when its owner ends, the stored version is kept in quarantine, and named. A version
that comes and goes between two of these moments is not seen.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from isolation.claims.globs import Claim
from isolation.claims.owners import roots
from isolation.git.commits import named
from isolation.git.repository import Repository
from isolation.shared_tree.quarantine import ChangeEffect, ForeignChange, quarantine_changes
from isolation.shared_tree.snapshot import (
    LARGEST,
    Fingerprint,
    Snapshot,
    fingerprint_of,
    store,
    take_snapshot,
)

MOST_FILES = 200
"""How many files are stored at one moment."""
MOST_VERSIONS = 4
"""How many versions of a file are kept."""


class Version(Struct, frozen=True, kw_only=True):
    """What a file of a running story held when a session of another began or ended."""

    blob: str
    fingerprint: Fingerprint
    owner: str
    other: str


class Versions:
    """The versions of one run's files, for one thread at a time. Blocking."""

    def __init__(self, repository: Repository, run_id: str, claims: Mapping[str, Claim]) -> None:
        self._repository = repository
        self._run_id = run_id
        self._claims = claims
        self._found: dict[str, list[Version]] = {}

    def see(self, other: str, running: Collection[str], known: Snapshot) -> None:
        """Store what the running stories have changed; `other` is the story whose session begins or ends."""
        changed: dict[str, tuple[Fingerprint, str]] = {}
        for owner in sorted(set(running) - {other}):
            for path, fingerprint in self._files_of(owner):
                seen = self._found.get(path)
                if known.get(path) != fingerprint and not (seen and seen[-1].fingerprint == fingerprint):
                    changed[path] = (fingerprint, owner)
        some = sorted(changed)[:MOST_FILES]
        for path, blob in store(self._repository, self._repository.top, some).items():
            fingerprint, owner = changed[path]
            version = Version(blob=blob, fingerprint=fingerprint, owner=owner, other=other)
            others = [each for each in self._found.get(path, []) if each.blob != blob]
            self._found[path] = [*others, version][-MOST_VERSIONS:]

    def settle(self, owner: str) -> tuple[str, ...]:
        """Keep the versions of a story that has ended which are not in the tree; return words about them."""
        top = self._repository.top
        own = {path: found for path, found in self._found.items() if found[0].owner == owner}
        for path in own:
            del self._found[path]
        now = store(self._repository, top, [path for path in own if (top / path).is_file()])
        lost = {
            path: left
            for path, found in sorted(own.items())
            if (left := [each for each in reversed(found) if each.blob != now.get(path)])
        }
        # One ref holds one version of each file; the newest ones first.
        rounds = range(max(map(len, lost.values()), default=0))
        return tuple(
            self._keep(owner, {path: found[number] for path, found in lost.items() if number < len(found)})
            for number in rounds
        )

    def _keep(self, owner: str, versions: Mapping[str, Version]) -> str:
        others = sorted({each.other for each in versions.values()})
        changes = [
            ForeignChange(path=path, what=ChangeEffect.CHANGED, after=each.fingerprint, blob=each.blob)
            for path, each in versions.items()
        ]
        kept = quarantine_changes(
            self._repository,
            self._repository.top,
            changes,
            run_id=self._run_id,
            story_ids=(owner, *others),
            date=time.time(),
        )
        words = f"it is not known who wrote what, since {' and '.join(others)} could write there, too: "
        return f"{words}{named(list(versions))}; another version is kept as {kept.ref}"

    def _files_of(self, owner: str) -> Iterable[tuple[str, Fingerprint]]:
        """Yield the files that a story owns."""
        claim, top = self._claims[owner], self._repository.top
        for root in roots(claim):
            place = top if root in {"", "."} else top / root
            if place.is_dir() and not place.is_symlink():
                inside = take_snapshot(place, open_to_all=lambda _: False)
                prefix = "" if place == top else f"{Path(root).as_posix()}/"
                found = {f"{prefix}{path}": each for path, each in inside.items()}
            else:
                alone = fingerprint_of(place)
                found = {root: alone} if alone else {}
            for path, each in found.items():
                if each.is_file and each.size <= LARGEST and claim.owns(path):
                    yield path, each

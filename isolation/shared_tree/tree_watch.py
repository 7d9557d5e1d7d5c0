"""Who changed what in a shared working tree: a comparison after each session, and what follows from it.

Without the system's help the writer of a change is unknown. What is known: which stories were at work when
an entry last changed, by the clock of the file system, and which story owns it. A change to a running
story's own paths is assumed to be its own; any other change is foreign. Foreign changes are kept, undone,
and reported to all stories that may have made them. A change that happened while no story was at work is the
user's and stays.

If several stories may have made a change, each of them works alone the next time, so that the next foreign
change has one author.

Invariants:

- The tree is compared by one task at a time; a session begins and ends under the same lock, so every change
  falls between two known moments.
- What is known of a path is updated only for a change that was accepted; otherwise the next comparison would
  miss it.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from isolation.claims.globs import Claim
from isolation.claims.owners import ANYBODY, Owners, ancestors, lies_in
from isolation.errors import WorkspaceError
from isolation.git.repository import Repository, offload
from isolation.paths import EXCHANGE, shared_index_path
from isolation.shared_tree.findings import Finding, Watched
from isolation.shared_tree.quarantine import classify, quarantine_changes, undo_changes
from isolation.shared_tree.snapshot import (
    Contents,
    Difference,
    Snapshot,
    differences,
    file_system_time,
    fingerprint_of,
    take_snapshot,
)
from isolation.shared_tree.versions import Versions

_GRACE = 120.0


@dataclass(slots=True, kw_only=True)
class _Span:
    """When a story was at work, by the file system's clock; `ended` is None while it still is."""

    story_id: str
    began: int
    ended: int | None = None

    def within(self, first: int, last: int) -> bool:
        return self.began <= last and (self.ended is None or self.ended >= first)


@dataclass(slots=True)
class _Gate:
    """Lets in many at a time, or one alone; a task that waits to be alone is not overtaken."""

    inside: int = 0
    alone: bool = False
    waiting: int = 0
    changed: trio.Condition = field(default_factory=trio.Condition)

    @asynccontextmanager
    async def passing(self, *, alone: bool) -> AsyncIterator[None]:
        async with self.changed:
            self.waiting += alone
            try:
                while self.alone or (self.inside if alone else self.waiting):
                    await self.changed.wait()
            finally:
                self.waiting -= alone
            self.inside += 1
            self.alone = alone
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                async with self.changed:
                    self.inside -= 1
                    self.alone = False
                    self.changed.notify_all()


class TreeWatch:
    """Watches one working tree for one run; `claims` are those of all its stories.

    `reach` names the folders that the system lets each story write to; without it, everywhere. If nothing is
    `prevented`, versions of running stories' files are kept, see `versions.py`.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        run_id: str,
        claims: Mapping[str, Claim],
        open_to_all: Claim,
        reach: Callable[[str], Sequence[str]] | None = None,
        prevented: bool = True,
    ) -> None:
        self._reach = reach
        self._repository = repository
        self._run_id = run_id
        self._owners = Owners({**claims, ANYBODY: open_to_all})
        self._open_to_all = open_to_all
        self._top = repository.top
        self._own = repository.top / EXCHANGE
        self._contents = Contents(
            repository=repository, top=self._top, index=shared_index_path(repository.common_dir)
        )
        self._versions = None if prevented else Versions(repository, run_id, claims)
        self._known: Snapshot = {}
        self._head: str | None = None
        self._compared_at = 0
        self._spans: list[_Span] = []
        self._pending: dict[str, list[Finding]] = {}
        self._suspects: set[str] = set()
        self._undone: set[str] = set()
        self._lock = trio.Lock()
        self._gate = _Gate()

    def admit(self, story_id: str, claim: Claim) -> None:
        """Take the claim of a story that joins the run; `claims` and `reach` have it already."""
        self._owners.put(story_id, claim)

    def begin(self) -> None:
        """Take the first snapshot, before any story works; blocking."""
        self._compared_at = file_system_time(self._own)
        self._known = self._take()
        self._head = self._repository.head(self._top)
        self._contents.begin(self._known)

    @asynccontextmanager
    async def session(self, story_id: str) -> AsyncIterator[Watched]:
        """Watch one session; a story under suspicion waits until it can work alone."""
        watched, alone = Watched(), self.is_suspect(story_id)
        async with self._gate.passing(alone=alone):
            async with self._lock:
                span = _Span(story_id=story_id, began=await offload(file_system_time, self._own))
                self._spans.append(span)
                if self._versions is not None and len(running := self._running()) > 1:
                    await offload(self._versions.see, story_id, running, self._known)
            try:
                yield watched
            finally:
                # Shielded, since a cancelled session may have changed files as well.
                with trio.move_on_after(_GRACE, shield=True) as patience:
                    async with self._lock:
                        await offload(self._compare, span)
                        watched.findings = tuple(self._pending.pop(story_id, ()))
                        if self._versions is not None:
                            watched.notes = await offload(self._versions.settle, story_id)
                if patience.cancelled_caught:
                    raise WorkspaceError(f"the tree could not be compared within {_GRACE:g} s")
            if alone and not watched.findings:
                self._suspects.discard(story_id)

    def is_suspect(self, story_id: str) -> bool:
        """Return whether a story works alone the next time, because it may have made a foreign change."""
        return story_id in self._suspects

    def _compare(self, span: _Span) -> None:
        """Find what changed since the last comparison, and settle all that can be settled now."""
        # Before the snapshot, so that a change during it falls into the next comparison.
        began = span.ended = file_system_time(self._own)
        running = self._running()
        if self._versions is not None and running:
            self._versions.see(span.story_id, running, self._known)
        now = self._take()
        explained = self._explained_by_head()
        found = self._unsettled(differences(self._known, now), now)
        owners = {each.path: self._owners.of(each.path, working=span.story_id) for each in found}
        carrying = {above for path, owner in owners.items() if owner for above in ancestors(path)}
        fine: list[str] = []
        foreign: dict[tuple[str, ...], list[Difference]] = {}
        for each in found:
            owner = owners[each.path]
            if owner in running:
                continue  # it is compared when that session ends
            harmless = owner in {span.story_id, ANYBODY} or each.path in explained
            if harmless or self._carries(each, carrying) or not (suspects := self._candidates(each)):
                fine.append(each.path)
            else:
                foreign.setdefault(suspects, []).append(each)
        self._accept(fine, now)
        for suspects, changes in foreign.items():
            self._settle(suspects, changes, now)
        self._compared_at = began
        self._spans = [each for each in self._spans if each.ended is None or each.ended > began]

    def _running(self) -> set[str]:
        return {each.story_id for each in self._spans if each.ended is None}

    def _unsettled(self, found: Sequence[Difference], now: Snapshot) -> list[Difference]:
        """Leave out what was undone earlier and has stayed so; only its fingerprint is new."""
        judged = classify((each for each in found if each.path in self._undone), self._contents)
        same = {path for path, change in judged.items() if change is None}
        self._known.update({path: now[path] for path in same})
        self._undone.clear()
        return [each for each in found if each.path not in same]

    def _carries(self, difference: Difference, carrying: set[str]) -> bool:
        """Return whether a folder appeared or vanished only because of owned entries in it."""
        alone = difference.before or difference.after
        if alone is None or not alone.is_folder or (difference.before and difference.after):
            return False
        return difference.path in carrying or self._owners.leads_to_owned(difference.path)

    def _take(self) -> Snapshot:
        return take_snapshot(self._top, open_to_all=self._open_to_all.owns)

    def _explained_by_head(self) -> frozenset[str]:
        """Return the paths that a move of HEAD explains: the user switched, pulled or committed."""
        before, self._head = self._head, self._repository.head(self._top)
        if before is None or self._head is None or before == self._head:
            return frozenset()
        return frozenset(self._repository.changed_paths(before, self._head))

    def _candidates(self, difference: Difference) -> tuple[str, ...]:
        """Return the stories that were at work when the path last changed."""
        if difference.after is None or difference.after.is_folder:
            first, last = self._compared_at, self._folder_changed_at(difference.path)
        else:
            first = last = difference.after.ctime_ns
        at_work = {each.story_id for each in self._spans if each.within(first, last)}
        if self._reach is not None:
            reach = self._reach
            at_work = {story_id for story_id in at_work if lies_in(difference.path, reach(story_id))}
        return tuple(sorted(at_work))

    def _folder_changed_at(self, path: str) -> int:
        """Return the latest time at which an entry can have appeared or vanished: its folder's ctime."""
        place = self._top / path
        for folder in (place, *place.parents):
            try:
                return folder.lstat().st_ctime_ns
            except OSError:
                continue
        return time.time_ns()

    def _accept(self, paths: Sequence[str], now: Snapshot) -> None:
        """Accept what is at these paths as what belongs there."""
        for path in paths:
            if path in now:
                self._known[path] = now[path]
            else:
                self._known.pop(path, None)
        self._contents.learn(paths, now)

    def _settle(self, suspects: tuple[str, ...], found: Iterable[Difference], now: Snapshot) -> None:
        """Keep foreign changes, undo them, and report them to every story that may have made them."""
        judged = classify(found, self._contents)
        self._accept([path for path, change in judged.items() if change is None], now)
        changes = [change for change in judged.values() if change is not None]
        if not changes:
            return
        kept = quarantine_changes(
            self._repository,
            self._top,
            changes,
            run_id=self._run_id,
            story_ids=suspects,
            date=time.time(),
        )
        stayed = undo_changes(self._contents, kept.changes)
        # What is known of a path stays as it was, so that a change that another story makes to it meanwhile
        # is found by the next comparison. What could not be undone, and is still the same, is accepted.
        self._undone.update(change.path for change in changes)
        left = {change.path for change in changes if fingerprint_of(self._top / change.path) == change.after}
        self._accept(sorted(left.intersection(stayed)), now)
        finding = Finding(quarantine=kept, stayed=stayed)
        for story_id in suspects:
            self._pending.setdefault(story_id, []).append(finding)
        if len(suspects) > 1:
            self._suspects.update(suspects)

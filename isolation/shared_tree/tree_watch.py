"""Who changed what in a shared working tree: a look after each session, and what follows from it.

Without the system's help nobody sees who writes. What is known: who was at work when an entry changed
last, by the clock of the file system, and who owns it. A change of a running story's own paths is taken
for its own; any other change is foreign. Foreign changes are kept, undone, and told to all stories that
may have made them. A change that happened while nobody was at work is the user's and stays.

Where several may have done it, each of them works alone the next time, so that the guilty are told from
the innocent. Looks are taken one at a time; a session begins and ends under the same lock.
"""

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from isolation.claims.globs import Claim
from isolation.claims.owners import ANYBODY, Owners, ancestors, lies_in
from isolation.errors import WorkspaceError
from isolation.git.repository import Repository, offload
from isolation.paths import EXCHANGE, shared_index_path
from isolation.shared_tree.contents import Contents
from isolation.shared_tree.findings import Finding, Watched
from isolation.shared_tree.quarantine import classify, keep, put_back
from isolation.shared_tree.snapshot import Difference, Picture, differences, file_system_time, sign_of, take

_GRACE = 120.0


@dataclass(slots=True, kw_only=True)
class _Stay:
    """When a story was at work, by the file system's clock; `ended` is None while it is."""

    story_id: str
    began: int
    ended: int | None = None

    def within(self, first: int, last: int) -> bool:
        return self.began <= last and (self.ended is None or self.ended >= first)


@dataclass(slots=True)
class _Gate:
    """Many at a time, or one alone; who waits to be alone is not overtaken."""

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

    `reach` names the folders that the system lets each story write to; without it, everywhere.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        run_id: str,
        claims: Mapping[str, Claim],
        open_to_all: Claim,
        reach: Mapping[str, Sequence[str]] | None = None,
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
        self._known: Picture = {}
        self._head: str | None = None
        self._looked_at = 0
        self._stays: list[_Stay] = []
        self._pending: dict[str, list[Finding]] = {}
        self._suspects: set[str] = set()
        self._put_back: set[str] = set()
        self._lock = trio.Lock()
        self._gate = _Gate()

    def begin(self) -> None:
        """Take the first look, before any story works; blocking."""
        self._looked_at = file_system_time(self._own)
        self._known = self._take()
        self._head = self._repository.head(self._top)
        self._contents.begin(self._known)

    @asynccontextmanager
    async def session(self, story_id: str) -> AsyncIterator[Watched]:
        """Watch one session; a story under suspicion waits until it can work alone."""
        watched, alone = Watched(), self.is_suspect(story_id)
        async with self._gate.passing(alone=alone):
            async with self._lock:
                stay = _Stay(story_id=story_id, began=await offload(file_system_time, self._own))
                self._stays.append(stay)
            try:
                yield watched
            finally:
                with trio.move_on_after(_GRACE, shield=True) as patience:
                    async with self._lock:
                        await offload(self._look, stay)
                        watched.findings = tuple(self._pending.pop(story_id, ()))
                if patience.cancelled_caught:
                    raise WorkspaceError(f"the tree could not be looked at within {_GRACE:g} s")
            if alone and not watched.findings:
                self._suspects.discard(story_id)

    def is_suspect(self, story_id: str) -> bool:
        """Tell whether a story works alone the next time, because of what it may have done."""
        return story_id in self._suspects

    def _look(self, stay: _Stay) -> None:
        """Find what changed since the last look, and settle all that can be settled now."""
        began = stay.ended = file_system_time(self._own)
        now = self._take()
        running = {each.story_id for each in self._stays if each.ended is None}
        explained = self._explained_by_head()
        found = self._unsettled(differences(self._known, now), now)
        owners = {each.path: self._owners.of(each.path) for each in found}
        carrying = {above for path, owner in owners.items() if owner for above in ancestors(path)}
        fine: list[str] = []
        foreign: dict[tuple[str, ...], list[Difference]] = {}
        for each in found:
            owner = owners[each.path]
            if owner in running:
                continue  # its own look will come
            harmless = owner in {stay.story_id, ANYBODY} or each.path in explained
            if harmless or self._carries(each, carrying) or not (suspects := self._candidates(each)):
                fine.append(each.path)
            else:
                foreign.setdefault(suspects, []).append(each)
        self._accept(fine, now)
        for suspects, changes in foreign.items():
            self._settle(suspects, changes, now)
        self._looked_at = began
        self._stays = [each for each in self._stays if each.ended is None or each.ended > began]

    def _unsettled(self, found: Sequence[Difference], now: Picture) -> list[Difference]:
        """Leave out what was put back at an earlier look and has stayed so; only its sign is new."""
        judged = classify((each for each in found if each.path in self._put_back), self._contents)
        same = {path for path, change in judged.items() if change is None}
        self._known.update({path: now[path] for path in same})
        self._put_back.clear()
        return [each for each in found if each.path not in same]

    def _carries(self, difference: Difference, carrying: set[str]) -> bool:
        """Tell whether a folder came or went only for the sake of what somebody owns in it."""
        alone = difference.before or difference.after
        if alone is None or not alone.is_folder or (difference.before and difference.after):
            return False
        return difference.path in carrying or self._owners.leads_to_owned(difference.path)

    def _take(self) -> Picture:
        return take(self._top, open_to_all=self._open_to_all.owns)

    def _explained_by_head(self) -> frozenset[str]:
        """Give the paths that a move of HEAD accounts for: a person switched, pulled or committed."""
        before, self._head = self._head, self._repository.head(self._top)
        if before is None or self._head is None or before == self._head:
            return frozenset()
        return frozenset(self._repository.changed_paths(before, self._head))

    def _candidates(self, difference: Difference) -> tuple[str, ...]:
        """Name the stories that were at work when the path changed last."""
        if difference.after is None or difference.after.is_folder:
            first, last = self._looked_at, self._folder_changed_at(difference.path)
        else:
            first = last = difference.after.ctime_ns
        at_work = {each.story_id for each in self._stays if each.within(first, last)}
        if self._reach is not None:
            reach = self._reach
            at_work = {story_id for story_id in at_work if lies_in(difference.path, reach[story_id])}
        return tuple(sorted(at_work))

    def _folder_changed_at(self, path: str) -> int:
        """Give the latest time at which an entry can have come or gone: its folder tells."""
        place = self._top / path
        for folder in (place, *place.parents):
            try:
                return folder.lstat().st_ctime_ns
            except OSError:
                continue
        return time.time_ns()

    def _accept(self, paths: Sequence[str], now: Picture) -> None:
        """Take what stands at these paths for what belongs there."""
        for path in paths:
            if path in now:
                self._known[path] = now[path]
            else:
                self._known.pop(path, None)
        self._contents.learn(paths, now)

    def _settle(self, suspects: tuple[str, ...], found: Iterable[Difference], now: Picture) -> None:
        """Keep foreign changes, undo them, and tell everyone who may have made them."""
        judged = classify(found, self._contents)
        self._accept([path for path, change in judged.items() if change is None], now)
        changes = [change for change in judged.values() if change is not None]
        if not changes:
            return
        kept = keep(
            self._repository,
            self._top,
            changes,
            run_id=self._run_id,
            story_ids=suspects,
            date=time.time(),
        )
        stayed = put_back(self._contents, kept.changes)
        # What is known of a path stays as it was, so that a change that somebody else makes to it meanwhile
        # is found at the next look. What could not be undone, and is still the same, is taken as it is.
        self._put_back.update(change.path for change in changes)
        left = {change.path for change in changes if sign_of(self._top / change.path) == change.after}
        self._accept(sorted(left.intersection(stayed)), now)
        finding = Finding(quarantine=kept, stayed=stayed)
        for story_id in suspects:
            self._pending.setdefault(story_id, []).append(finding)
        if len(suspects) > 1:
            self._suspects.update(suspects)

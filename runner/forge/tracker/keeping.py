"""Creates and links the work items of a step, each once.

Every act is an intent in a ledger first. An item carries a marker, so that one whose creation was not
acknowledged is found instead of created again.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import trio
from msgspec import Struct
from msgspec.structs import replace

from isolation.git.repository import Repository
from runner.core.text.redaction import Redactor
from runner.core.work_items.documents import Kind, WorkItem
from runner.core.work_items.tracker import TITLES, Tracker
from runner.forge.tracker.backend import Backend, Link

SEARCHES = 3
SEARCH_PAUSE = 1.5
"""A tracker may show a new item in searches only after a moment."""


class Ledger(Protocol):
    """Where intents and what came of them are recorded, by marker."""

    def known(self, marker: str) -> str | None:
        """Return what is recorded: an id, empty for an intent alone, None for nothing."""

    async def intend(self, marker: str, act: str) -> None:
        """Record what is about to be done; durable when it returns."""

    async def done(self, marker: str, item_id: str) -> None:
        """Record what came of it."""


class Act(Struct, frozen=True, kw_only=True):
    """One thing to do in a tracker: create an item, or relate it to another one, by their keys."""

    item: WorkItem
    parent: WorkItem | None = None
    blocker: WorkItem | None = None

    @property
    def other(self) -> WorkItem | None:
        """The item to relate it to; None if it is to be created."""
        return self.parent or self.blocker


def marker_of(origin: str, story: str, key: str) -> str:
    """Return the mark of an item: the same for every clone of a repository and every run of a story."""
    digest = hashlib.sha256(f"{origin}\0{story}\0{key}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"autopilot-{digest[:16]}"


def first_commit(repository: Repository, commit: str) -> str:
    """Return what all clones of a repository share: the first commit of its history. Blocks."""
    listed = repository.run("rev-list", "--max-parents=0", commit).stdout.split()
    return listed[-1] if listed else ""


def acts_of(items: Sequence[WorkItem], epics: Sequence[WorkItem]) -> Iterator[Act]:
    """Return what is to be done for items, epics first; `epics` are all that their tasks may belong to."""
    ordered = sorted(items, key=lambda item: item.kind is Kind.TASK)
    by_key = {item.key: item for item in items}
    fresh = {item.key for item in items if not item.id}
    for item in ordered:
        if not item.id:
            yield Act(item=item)
    for item in ordered:
        if item.kind is Kind.EPIC:
            continue
        epic = epic_of(item, epics)
        if epic is not None and (item.key in fresh or epic.key in fresh):
            yield Act(item=item, parent=epic)
        for key in item.depends:
            if item.key in fresh or key in fresh:
                yield Act(item=item, blocker=by_key[key])


def epic_of(task: WorkItem, epics: Sequence[WorkItem]) -> WorkItem | None:
    """Return the epic of a task: the one that it names, by title or id, else the only one."""
    named = task.epic.casefold()
    if not named:
        return epics[0] if len(epics) == 1 else None
    exact = [epic for epic in epics if named in {epic.title.casefold(), epic.id.casefold()}]
    within = [epic for epic in epics if epic.title.casefold() in named or (epic.id and epic.id in task.epic)]
    within = within or [epic for epic in epics if named in epic.title.casefold()]
    return next(iter(exact or (within if len(within) == 1 else [])), None)


def described(act: Act, tracker: Tracker) -> str:
    """Say what an act does, in words for people."""
    item = act.item
    if act.parent is not None:
        return f"link {_name(item)} to {_name(act.parent)}"
    if act.blocker is not None:
        return f"link {_name(item)} to what it waits for, {_name(act.blocker)}"
    return f"create {_name(item)} in {TITLES.get(tracker, 'the tracker')}"


def _name(item: WorkItem) -> str:
    return f"{item.kind} '{item.title}'" + (f" ({item.id})" if item.id else "")


class Keeping(Struct, frozen=True, kw_only=True):
    """Where acts are done and recorded; `mark` makes a marker of a key.

    Sessions write the files, so `redactor` removes secrets from what is sent.
    """

    backend: Backend
    ledger: Ledger
    mark: Callable[[str], str]
    redactor: Redactor

    async def carry_out(self, acts: Sequence[Act]) -> dict[str, str]:
        """Do what is to be done, each once; return the ids by the keys of items."""
        ids: dict[str, str] = {}
        for act in acts:
            if act.other is None:
                ids[act.item.key] = await self._create(act)
            else:
                await self._link(act, act.other, ids)
        return ids

    async def _create(self, act: Act) -> str:
        backend, ledger, marker = self.backend, self.ledger, self.mark(act.item.key)
        before = ledger.known(marker)
        if before:
            return before
        if before is None:
            await ledger.intend(marker, described(act, backend.tracker))
        # Only an intent of another life may have left an item that a search does not show yet.
        found = ""
        for number in range(1 if before is None else SEARCHES):
            await trio.sleep(SEARCH_PAUSE if number else 0)
            found = found or await backend.find(marker)
            if found:
                break
        item_id = found or await backend.create(self._clean(act.item), marker)
        await ledger.done(marker, item_id)
        return item_id

    def _clean(self, item: WorkItem) -> WorkItem:
        return replace(item, title=self.redactor.text(item.title), body=self.redactor.text(item.body))

    async def _link(self, act: Act, other: WorkItem, ids: Mapping[str, str]) -> None:
        item_id, other_id = (one.id or ids.get(one.key, "") for one in (act.item, other))
        if not item_id or not other_id:
            return
        backend, ledger = self.backend, self.ledger
        kind = "epic" if act.parent else "after"
        marker = self.mark(f"{act.item.key} {kind} {other.key}")
        before = ledger.known(marker)
        if before:
            return
        if before is None:
            await ledger.intend(marker, described(act, backend.tracker))
        link = Link(parent=act.parent is not None, other=other_id)
        if link not in await backend.links(item_id):
            await backend.link(item_id, link)
        await ledger.done(marker, item_id)

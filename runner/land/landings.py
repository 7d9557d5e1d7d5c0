"""Landings in the journal: writing their events to each run that is concerned, and reading them again."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from runner.core.events import landing as ld
from runner.core.events.events import Body, Event
from runner.core.model import RunId
from runner.core.text.redaction import Redactor
from runner.land.candidates import Candidate
from runner.land.known import RUNS_SEARCHED
from runner.records.journal import Journal


class Landing(Struct, frozen=True, kw_only=True):
    """One landing as the journal knows it; `moving` is an intent whose end is not recorded.

    `owners` are its stories with the runs that they belong to.
    """

    id: str
    at: float
    onto: str
    before: str
    commit: str
    style: str = "merge"
    owners: tuple[tuple[RunId, tuple[str, ...]], ...] = ()
    moving: bool = True
    abandoned: bool = False
    undone: bool = False
    undoing: ld.LandingUndoPlanned | None = None

    @property
    def stories(self) -> tuple[str, ...]:
        """The ids of its stories, over all runs."""
        return tuple(story for _, stories in self.owners for story in stories)


Owners: TypeAlias = Sequence[tuple[RunId, tuple[str, ...]]]


def owners_of(stories: Iterable[Candidate]) -> Owners:
    """Return stories by the run that they belong to."""
    found: dict[RunId, tuple[str, ...]] = {}
    for each in stories:
        found[each.run_id] = (*found.get(each.run_id, ()), each.id)
    return tuple(found.items())


class LandingLog:
    """Writes the events of landings; each call is one transaction. Blocking."""

    def __init__(self, journal: Journal, redactor: Redactor) -> None:
        self.journal = journal
        self._redactor = redactor

    def record(self, owners: Owners, body: Callable[[tuple[str, ...]], Body]) -> None:
        """Record an event in each of these runs; `body` makes it from the stories of the run."""
        self.append([(run_id, body(stories)) for run_id, stories in owners])

    def append(self, bodies: Sequence[tuple[RunId, Body]]) -> None:
        """Record events, each in its run."""
        at = time.time()
        events = [Event(run_id=run, at=at, body=self._redactor.value((body,))[0]) for run, body in bodies]
        self.journal.append(events)


def landings(journal: Journal) -> list[Landing]:
    """Return the landings that the newest runs know of, oldest first."""
    events = [
        (event, run_id)
        for run_id in journal.runs()[:RUNS_SEARCHED]
        for event in journal.events(run_id)
        if isinstance(event.body, _CHANGING)
    ]
    found: dict[str, Landing] = {}
    for event, run_id in sorted(events, key=lambda each: each[0].at):
        body = event.body
        if isinstance(body, ld.LandingVerified):
            found[body.landing_id] = _verified(found.get(body.landing_id), body, run_id, event.at)
        elif isinstance(body, _CHANGING) and body.landing_id in found:
            found[body.landing_id] = _after(found[body.landing_id], body)
    return sorted(found.values(), key=lambda each: (each.at, each.id))


_CHANGING = (
    *(ld.LandingVerified, ld.Landed, ld.LandingAbandoned),
    *(ld.LandingUndoPlanned, ld.LandingUndone),
)
_Later: TypeAlias = ld.Landed | ld.LandingAbandoned | ld.LandingUndoPlanned | ld.LandingUndone


def _verified(known: Landing | None, body: ld.LandingVerified, run_id: RunId, at: float) -> Landing:
    """Take the intent of one run; when the target had moved, a newer commit replaces the older one."""
    owners = dict(known.owners) if known and known.commit == body.commit else {}
    return Landing(
        id=body.landing_id,
        at=at,
        onto=body.onto,
        before=body.before,
        commit=body.commit,
        style=body.style,
        owners=tuple((owners | {run_id: body.stories}).items()),
    )


def _after(landing: Landing, body: _Later) -> Landing:
    match body:
        case ld.Landed():
            return replace(landing, moving=False)
        case ld.LandingUndoPlanned():
            return replace(landing, undoing=body)
        case ld.LandingUndone():
            return replace(landing, undoing=None, undone=True)
        case ld.LandingAbandoned():
            if landing.undoing is not None:
                return replace(landing, undoing=None)
            return replace(landing, moving=False, abandoned=True)
        case _:
            assert_never(body)

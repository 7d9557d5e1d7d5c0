"""Landings in the journal: writing their events to each run that is concerned, and reading them again."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from isolation.git.repository import Repository
from runner.core.events import landing as ld
from runner.core.events.events import Body, Event
from runner.core.model import RunId
from runner.core.text.redaction import Redactor
from runner.land.candidates import Candidate
from runner.land.known import RUNS_SEARCHED
from runner.records.journal import Journal
from runner.run.several.belonging import Belonging


class Landing(Struct, frozen=True, kw_only=True):
    """One landing as the journal knows it; `moving` is an intent whose end is not recorded.

    `planned` means that there is no intent: it was verifying. `owners` are the stories that it brings, with
    the runs that they belong to, `train` those that it was to bring.
    """

    id: str
    at: float
    onto: str
    before: str
    commit: str
    style: str = "merge"
    owners: tuple[tuple[RunId, tuple[str, ...]], ...] = ()
    train: tuple[tuple[RunId, tuple[str, ...]], ...] = ()
    planned: bool = False
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
    """Writes the events of landings; each call is one transaction. Blocking.

    `seen` gets each event once, however many runs have a copy of it, and with the stories of all of them.
    """

    def __init__(
        self, journal: Journal, redactor: Redactor, seen: Callable[[Event], None] = lambda _: None
    ) -> None:
        self.journal = journal
        self._redactor = redactor
        self._seen = seen
        # Several sequences may be verified at once, each with a thread of its own that records.
        self._lock = threading.Lock()

    def record(self, owners: Owners, body: Callable[[tuple[str, ...]], Body]) -> None:
        """Record an event in each of these runs; `body` makes it from the stories of the run."""
        whole = [(run, body(tuple(each for _, own in owners for each in own))) for run, _ in owners[:1]]
        self._append([(run_id, body(stories)) for run_id, stories in owners], whole)

    def record_whole(self, owners: Owners, body: Body) -> None:
        """Record the same event in each of these runs."""
        self.record(owners, lambda _: body)

    def append(self, bodies: Sequence[tuple[RunId, Body]]) -> None:
        """Record events, each in its run."""
        self._append(bodies, bodies)

    def _append(self, bodies: Sequence[tuple[RunId, Body]], shown: Sequence[tuple[RunId, Body]]) -> None:
        with self._lock:
            at = time.time()
            self.journal.append([self._event(run, body, at) for run, body in bodies])
            for run, body in shown:
                self._seen(self._event(run, body, at))

    def _event(self, run: RunId, body: Body, at: float) -> Event:
        return Event(run_id=run, at=at, body=self._redactor.value((body,))[0])


def landings(journal: Journal, repository: Repository) -> list[Landing]:
    """Return the landings in a repository that the newest runs know of, oldest first."""
    own = Belonging(journal, repository)
    events = [
        (event, run_id)
        for run_id in journal.runs()[:RUNS_SEARCHED]
        for event in journal.events(run_id)
        if isinstance(event.body, _CHANGING)
    ]
    found: dict[str, Landing] = {}
    for event, run_id in sorted(events, key=lambda each: each[0].at):
        body = event.body
        if isinstance(body, ld.LandingPlanned | ld.LandingVerified) and not any(
            own.has(run_id, story) for story in body.stories
        ):
            continue
        if isinstance(body, ld.LandingPlanned):
            found[body.landing_id] = _planned(found.get(body.landing_id), body, run_id, event.at)
        elif isinstance(body, ld.LandingVerified):
            found[body.landing_id] = _verified(found.get(body.landing_id), body, run_id, event.at)
        elif isinstance(body, _CHANGING) and body.landing_id in found:
            found[body.landing_id] = _after(found[body.landing_id], body)
    return sorted(found.values(), key=lambda each: (each.at, each.id))


_CHANGING = (
    *(ld.LandingPlanned, ld.TrainRebuilt, ld.LandingVerified, ld.Landed, ld.LandingEnded),
    *(ld.LandingAbandoned, ld.LandingUndoPlanned, ld.LandingUndone),
)
_Later: TypeAlias = (
    ld.TrainRebuilt
    | ld.Landed
    | ld.LandingEnded
    | ld.LandingAbandoned
    | ld.LandingUndoPlanned
    | ld.LandingUndone
)


def _planned(known: Landing | None, body: ld.LandingPlanned, run_id: RunId, at: float) -> Landing:
    owners = tuple(((dict(known.owners) if known else {}) | {run_id: body.stories}).items())
    return Landing(
        id=body.landing_id,
        at=at,
        onto=body.onto,
        before=body.tip,
        commit="",
        style=body.style,
        owners=owners,
        train=owners,
        planned=True,
        moving=False,
    )


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
        train=known.train if known else (),
    )


def _after(landing: Landing, body: _Later) -> Landing:  # noqa: PLR0911  one arm per event
    match body:
        case ld.TrainRebuilt():
            # The intent had no effect: somebody else has moved the target.
            return replace(landing, planned=True, moving=False)
        case ld.Landed():
            return replace(landing, moving=False)
        case ld.LandingEnded():
            return replace(landing, planned=False, abandoned=landing.abandoned or landing.planned)
        case ld.LandingUndoPlanned():
            return replace(landing, undoing=body)
        case ld.LandingUndone():
            return replace(landing, undoing=None, undone=True)
        case ld.LandingAbandoned():
            if landing.undoing is not None:
                return replace(landing, undoing=None)
            return replace(landing, planned=False, moving=False, abandoned=True)
        case _:
            assert_never(body)

"""What a page shows, as fragments: small pieces with an id and values, which are drawn only when they change.

A page is drawn from the fragments of its view, and browsers that watch it get those that have changed since.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from markupsafe import Markup
from msgspec import Struct

from runner.core.model import SessionRecord, StoryId, StorySnapshot
from runner.core.progress.landing import Car, LandingProgress, culprits
from runner.core.text.candidates import candidate_lines, review_line
from runner.report.html.landings import PILLS
from runner.report.html.timeline import legend, timeline, tone
from runner.report.report_data import ReportData, usage_text
from runner.report.terminal.train import landing_lines
from runner.serve.web import board
from runner.serve.web.board import Card, Clock, text
from runner.serve.web.render import render
from runner.serve.web.source import Seen, Source

TIMELINE_SECONDS = 2
MOST_SESSIONS = 100
_LONG = 2000
SIGNS = {"ok": "✓", "ask": "?", "bad": "✗", "halted": "■", "run": "●"}


class Frame(Struct, frozen=True, kw_only=True):
    """What all templates get: the key of our forms, and the run that was named in the address."""

    form: str
    run: str = ""

    @property
    def query(self) -> str:
        """The part of a link that keeps the named run."""
        return f"?run={self.run}" if self.run else ""


class Fragment(Struct, frozen=True, kw_only=True):
    """A piece of a page; it is drawn again when `data` differs from before, not for `extra` alone."""

    id: str
    template: str
    data: Any
    extra: str = ""

    def draw(self, frame: Frame) -> Markup:
        """Return it as HTML; its outer element has its id."""
        drawn = render(self.template, id=self.id, it=self.data, extra=self.extra, frame=frame)
        return Markup(drawn)  # noqa: S704  escaped there


class View(Protocol):
    """What a page shows of a run."""

    @property
    def run(self) -> str:
        """The run that was named; empty for the active or newest one."""

    def fragments(self, seen: Seen, now: float) -> Iterator[Fragment]:
        """Yield the pieces of the page."""

    def lists(self, seen: Seen) -> Mapping[str, list[str]]:
        """Return which fragments are in which lists, in their order."""


class BoardView(Struct, frozen=True, kw_only=True):
    """The board."""

    run: str = ""

    def fragments(self, seen: Seen, now: float) -> Iterator[Fragment]:
        """Yield the summary, and a card and a line for each story."""
        yield Fragment(id="head", template="_head.html", data=board.head(seen))
        for name, cards in self.lists(seen).items():
            number = name.replace("list", "count", 1)
            yield Fragment(id=number, template="_count.html", data=len(cards))
        for story_id, card in board.cards(seen, now).items():
            line = board.line_of(seen, seen.run.stories[story_id], now)
            yield Fragment(id=f"card-{story_id}", template="_card.html", data=card, extra=line)
            yield Fragment(id=f"line-{story_id}", template="_line.html", data=line)

    def lists(self, seen: Seen) -> Mapping[str, list[str]]:
        """Return which cards are in which column."""
        return board.lists(seen.run)


class SessionRow(Struct, frozen=True, kw_only=True):
    """One session in the table of a story."""

    number: int
    step: str
    tone: str
    sign: str
    outcome: str
    clock: Clock
    attempt: str
    by: str
    started_at: float
    spent: str
    detail: str


class StoryHead(Struct, frozen=True, kw_only=True):
    """What is known of a story beside its sessions."""

    card: Card
    depends_on: tuple[str, ...]
    branch: str
    next: str
    hint: str
    notes: tuple[str, ...]
    run_active: bool


class StoryView(Struct, frozen=True, kw_only=True):
    """One story; `session` is the number of the session whose log is shown, 0 for the newest."""

    run: str
    story_id: StoryId
    session: int = 0

    def fragments(self, seen: Seen, now: float) -> Iterator[Fragment]:
        """Yield the story's state, its question, its sessions and what can be done."""
        story = seen.run.stories[self.story_id]
        card = board.card(seen, story, now)
        yield Fragment(id="head", template="_head.html", data=board.head(seen))
        yield Fragment(id="story-state", template="_story.html", data=_story_head(seen, story, card))
        yield Fragment(id="story-line", template="_line.html", data=board.line_of(seen, story, now))
        yield Fragment(id="question", template="_question.html", data=card.asked)
        rows = tuple(_rows(seen, story, now))
        yield Fragment(id="sessions", template="_sessions.html", data=(story.id, self.session, rows))
        yield Fragment(id="actions", template="_actions.html", data=_offers(seen, card))

    def lists(self, seen: Seen) -> Mapping[str, list[str]]:  # noqa: ARG002  a story has none
        """Return nothing."""
        return {}


class LandingView(Struct, frozen=True, kw_only=True):
    """The landing train: the one in progress, else the run's last one."""

    run: str = ""

    def fragments(self, seen: Seen, now: float) -> Iterator[Fragment]:  # noqa: ARG002  it counts by itself
        """Yield the train."""
        yield Fragment(id="head", template="_head.html", data=board.head(seen))
        one = seen.landing
        shown = None if one is None else _train(one, alive=one.id == seen.landing_id)
        yield Fragment(id="train", template="_train.html", data=shown)

    def lists(self, seen: Seen) -> Mapping[str, list[str]]:  # noqa: ARG002  a train has none
        """Return nothing."""
        return {}


class TimelineView(Struct, frozen=True, kw_only=True):
    """What ran when, with slots and machine."""

    source: Source
    run: str = ""

    def fragments(self, seen: Seen, now: float) -> Iterator[Fragment]:
        """Yield the drawing; of a run that is active, every few seconds a new one."""
        yield Fragment(id="head", template="_head.html", data=board.head(seen))
        at = now - now % TIMELINE_SECONDS if seen.active else None
        yield Fragment(id="timeline", template="_timeline.html", data=_Drawn(seen, at, self))

    def lists(self, seen: Seen) -> Mapping[str, list[str]]:  # noqa: ARG002  a timeline has none
        """Return nothing."""
        return {}


class _Drawn:
    """A timeline that is drawn when it is shown; equal if it would look the same."""

    def __init__(self, seen: Seen, at: float | None, view: TimelineView) -> None:
        self._key = (seen.run, at)
        self._seen = seen
        self._at = at
        self._view = view

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Drawn) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._at)

    @property
    def html(self) -> Markup:
        """The drawing and its legend."""
        events = self._view.source.events(self._view.run)
        data = ReportData(run=self._seen.run, events=events, now=self._at)
        if not self._seen.run.stories:
            return Markup()
        return Markup(timeline(data, "/stories/") + legend(data))  # noqa: S704  both escape


class Train(Struct, frozen=True, kw_only=True):
    """A landing as it is drawn."""

    lines: tuple[str, ...]
    state: str
    alive: bool
    clock: Clock
    flying: tuple[tuple[str, Clock], ...]
    cars: tuple[tuple[str, str, str, str, str], ...]


def _train(one: LandingProgress, *, alive: bool) -> Train:
    shown = one if alive else one.at_rest()
    red = culprits(shown.batches)
    cars = []
    for story, car in shown.cars().items():
        pill, sign = PILLS[car]
        why = f"{red[story].command}: {red[story].detail}" if car is Car.RED else ""
        reason = shown.left[story].reason if story in shown.left else why
        cars.append((story, pill, sign, car.value, text(reason, _LONG)))
    headline = landing_lines(shown, now=one.ended_at or one.started_at, alive=alive)[0]
    return Train(
        lines=() if alive else (headline,),
        state=shown.state.value,
        alive=alive,
        clock=_running(one.started_at, one.ended_at if not alive else None, alive=alive),
        flying=tuple(
            (", ".join(batch.stories[:8]) or "the target as it is", _running(batch.started_at, None))
            for batch in shown.in_flight
        ),
        cars=tuple(cars),
    )


def _running(since: float, until: float | None, *, alive: bool = True) -> Clock:
    if until is not None or not alive:
        return Clock(seconds=max(0.0, (until or since) - since))
    return Clock(since=since)


def _story_head(seen: Seen, story: StorySnapshot, card: Card) -> StoryHead:
    notes = (*candidate_lines(story), review_line(story))
    own = [note.message for note in seen.run.notes if note.story_id == story.id]
    switch = story.kill_switch
    return StoryHead(
        card=card,
        depends_on=tuple(story.depends_on),
        branch=text(f"{story.repo}: " * bool(story.repo) + (story.workspace.branch or "")),
        next=text(story.next) if story.status.final and not story.workspace.merged else "",
        hint=text(switch.hint, _LONG) if switch else "",
        notes=tuple(text(note, _LONG) for note in (*notes, *own) if note),
        run_active=seen.active,
    )


def _rows(seen: Seen, story: StorySnapshot, now: float) -> Iterator[SessionRow]:
    data = ReportData(run=seen.run, now=now if seen.active else None)
    first = max(0, len(story.sessions) - MOST_SESSIONS)
    for number, session in enumerate(story.sessions[first:], first + 1):
        yield _row(data, story, session, number)


def _row(data: ReportData, story: StorySnapshot, session: SessionRecord, number: int) -> SessionRow:
    seen_as = tone(data, story, session)
    running = data.is_running(story, session)
    ended = session.ended_at or session.started_at
    return SessionRow(
        number=number,
        step=text(session.step.name),
        tone=seen_as,
        sign=SIGNS[seen_as],
        outcome=data.outcome(story, session) + (f" ({session.exit_code})" if session.exit_code else ""),
        clock=_running(session.started_at, None if running else ended, alive=running),
        attempt=f"{session.attempt} of {story.max_attempts}",
        by=text(session.worker or session.kind.value),
        started_at=session.started_at,
        spent=usage_text(session.usage),
        detail=text(session.detail, _LONG),
    )


class Offers(Struct, frozen=True, kw_only=True):
    """What can be done with a story now; `why_not` says why nothing can."""

    story_id: str
    stop: bool
    retry: bool
    why_not: str = ""


def _offers(seen: Seen, card: Card) -> Offers:
    retry = card.can_retry and seen.active
    why = "The run is not active: `Continue` starts it again." if card.can_retry and not seen.active else ""
    return Offers(story_id=card.id, stop=card.can_stop, retry=retry, why_not=why)


def drawn(view: View, seen: Seen, frame: Frame) -> dict[str, Markup]:
    """Return all fragments of a view as HTML, by their ids."""
    return {one.id: one.draw(frame) for one in view.fragments(seen, time.time())}

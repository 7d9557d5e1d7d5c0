"""The user's side of a run: a view that shows it, and a dialog that asks questions while stories run.

The command line provides both; the run knows them only by what is declared here.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio
from msgspec import Struct

from runner.core.events import events as ev
from runner.core.model import RunSnapshot, Status
from runner.core.notices.notice import Notice
from runner.records.event_log import EventLog


class View(Protocol):
    """What the user sees while a run is active."""

    def seen(self, event: ev.Event, run: RunSnapshot) -> None:
        """Take note of one event; must not block."""

    def say(self, line: str) -> None:
        """Show one line now."""

    async def refresh(self, hint: Callable[[], str]) -> None:
        """Keep what is shown current until cancelled; `hint` returns what Ctrl-C would do now."""

    def pause(self) -> None:
        """Keep still while a question is asked."""

    def resume(self) -> None:
        """Show the run again."""


class LiveRun:
    """What the dialog knows of the run: its snapshot, its changes, the view's pauses, and how to answer.

    `answer` records an answer, so that its story continues; `postponed` reports that the dialog waits for
    fewer answers than before although nothing was recorded. `pause` and `resume` are the view's.
    `bell` is whether a question rings the bell of the terminal.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        answer: Callable[[ev.DecisionAnswered], Awaitable[None]],
        postponed: Callable[[], None],
        pause: Callable[[], None],
        resume: Callable[[], None],
        bell: bool = True,
    ) -> None:
        self.bell = bell
        self.answer = answer
        self.postponed = postponed
        self.pause = pause
        self.resume = resume
        self._log = log
        self._change = trio.Event()
        log.subscribe(self._notice)

    def snapshot(self) -> RunSnapshot:
        """Return the run as it is now."""
        return self._log.snapshot

    async def changed(self) -> None:
        """Wait until something happens to the run after this call."""
        await self._change.wait()

    def _notice(self, event: ev.Event, _run: RunSnapshot) -> None:
        if not isinstance(event.body, ev.OutputSeen):
            self._change.set()
            self._change = trio.Event()


Ring = Callable[[Notice], None]


def no_bell(_notice: Notice) -> None:
    """Ring no bell: there is no terminal, or the settings say so."""


class Dialog(Protocol):
    """Asks the user questions while the run is active."""

    def waits(self, run: RunSnapshot) -> bool:
        """Return whether an answer is still awaited here."""

    async def serve(self, run: LiveRun) -> None:
        """Ask whatever is open until cancelled."""


class Interaction(Struct, frozen=True, kw_only=True):
    """The user's side of one run; without a dialog nothing is asked. `ring` rings the bell for a notice."""

    view: View
    dialog: Dialog | None = None
    ring: Ring = no_bell

    def asks(self, run: RunSnapshot) -> bool:
        """Whether the user is here and has questions of an ended run to answer."""
        parked = (story.status is Status.PARKED for story in run.open_decisions)
        return self.dialog is not None and any(parked)

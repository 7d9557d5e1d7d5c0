"""The dashboard with keys: one class for the terminal of a run and for those that watch it from elsewhere.

It knows a run only as snapshots and asks things of it only through the door, as any other process does.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from runner.cli.live.keys import key_line
from runner.cli.live.panes import pane_text, prompt_of
from runner.cli.live.state import (
    Act,
    Leave,
    LiveState,
    OpenPage,
    Pane,
    Postpone,
    Send,
    Surroundings,
    chosen,
    follow,
    next_question,
    press,
)
from runner.cli.live.terminal import KeyTerminal, suspending
from runner.core.errors import RunnerError
from runner.core.model import RunSnapshot
from runner.core.outlook.left import Outlook, Sample, outlook
from runner.report.terminal.dashboard import Dashboard, most_scroll
from runner.report.terminal.picture import Picture

if TYPE_CHECKING:
    from rich.console import Console

    from runner.cli.live.content import Content

REFRESH_SECONDS = 0.25
OUTLOOK_SECONDS = 1.0
PAGE_SECONDS = 20.0
"""How long to wait until the page is served."""
PAGE_POLL_SECONDS = 0.1


class LiveBoard:
    """Draws a run, and obeys keys where somebody can press them; one instance per terminal and run.

    `attached`: the run is carried by another process, so that leaving does it no harm. `postponed` is called
    when a question is not waited for any more.
    """

    def __init__(
        self,
        directory: Path,
        *,
        console: "Console",
        keys: KeyTerminal | None = None,
        attached: bool = False,
        postponed: Callable[[], None] = lambda: None,
    ) -> None:
        self.postponed = postponed
        self.bell = True
        self.left = False
        self._directory = directory
        self._console = console
        self._keys = keys
        self._attached = attached
        self._state = LiveState()
        self._run: RunSnapshot | None = None
        self._content: Content | None = None
        self._lines: Sequence[str] = ()
        self._dashboard: Dashboard | None = None
        self._past: Sequence[Sample] = ()
        self._outlook: tuple[float, Outlook] = (0.0, Outlook())
        self._begun = trio.Event()
        self._stale = trio.Event()
        self._rung: set[str] = set()

    @property
    def state(self) -> LiveState:
        """What is looked at."""
        return self._state

    def waits(self, run: RunSnapshot) -> bool:
        """Return whether a question is still open at this terminal."""
        return self._keys is not None and next_question(run, self._state.postponed) is not None

    def update(self, run: RunSnapshot) -> None:
        """Store the newest snapshot, which the next redraw shows."""
        self._run = run
        self._begun.set()

    async def show(self, hint: Callable[[], str]) -> None:
        """Draw and obey keys until cancelled or left; then the screen and the terminal are as before."""
        await trio.to_thread.run_sync(self._load_past)
        await self._begun.wait()
        try:
            async with trio.open_nursery() as nursery:
                if self._keys is not None:
                    nursery.start_soon(suspending, self._keys, self.clear)
                    nursery.start_soon(self._obey, self._keys, nursery.cancel_scope)
                    nursery.start_soon(self._read)
                await self._draw_on(hint, nursery.cancel_scope)
        finally:
            self.clear()
            if self._keys is not None:
                self._keys.give_back()

    def clear(self) -> None:
        """Remove the picture; the next redraw brings it back."""
        dashboard, self._dashboard = self._dashboard, None
        if dashboard is not None:
            with suppress(OSError):
                dashboard.__exit__(None, None, None)

    async def _draw_on(self, hint: Callable[[], str], scope: trio.CancelScope) -> None:
        while not self.left:
            if self._run is not None and self._may_draw():
                with suppress(OSError):  # losing the terminal must not end the run
                    self._draw(self._run, hint())
            self._stale = trio.Event()
            with trio.move_on_after(REFRESH_SECONDS):
                await self._stale.wait()
        scope.cancel()

    def _may_draw(self) -> bool:
        """Whether the terminal is ours; in the background the picture would be in the way of the shell."""
        if self._keys is None:
            return True
        if not self._keys.is_ours:
            return False
        self._keys.take()
        return True

    def _draw(self, run: RunSnapshot, hint: str) -> None:
        now = time.time()
        if self._keys is not None:
            self._follow(run, now)
        if self._dashboard is None:
            self._dashboard = Dashboard(run, console=self._console, hint=hint)
            self._dashboard.__enter__()
        self._dashboard.hint = hint
        self._dashboard.picture = self._picture(run, now)
        self._dashboard.update(run)
        self._dashboard.refresh(now)

    def _follow(self, run: RunSnapshot, now: float) -> None:
        self._state = follow(self._state, run, now)
        asked = next_question(run, self._state.postponed)
        if asked is None or self._keys is None or not self.bell:
            return
        if asked.decision_id not in self._rung:
            self._rung.add(asked.decision_id)
            self._keys.ring()

    def _picture(self, run: RunSnapshot, now: float) -> Picture:
        if now - self._outlook[0] >= OUTLOOK_SECONDS:
            self._outlook = now, outlook(run, self._past, now)
        state = self._state
        if self._keys is None:
            return Picture(outlook=self._outlook[1])
        return Picture(
            outlook=self._outlook[1],
            selected=state.selected,
            filter=state.filter,
            text=state.text,
            pane=pane_text(state, run, self._lines, now),
            answer=prompt_of(state, run),
            keys=key_line(self._console.size.width),
        )

    def _load_past(self) -> None:
        from isolation.paths import find_repository
        from runner.records.telemetry import load_samples, records_checkout

        self._past = load_samples(records_checkout(find_repository(self._directory)))

    async def _obey(self, terminal: KeyTerminal, scope: trio.CancelScope) -> None:
        terminal.take()
        async for key in terminal.keys():
            if self._run is None:
                continue
            before = self._state
            self._state, act = press(self._state, key, self._surroundings(self._run))
            if (before.pane, before.selected) != (self._state.pane, self._state.selected):
                self._lines = ()
            self._stale.set()
            if act is not None:
                await self._do(act, scope)
        # The terminal is gone, and no answer can come from it any more.
        self._keys = None
        self.postponed()

    def _surroundings(self, run: RunSnapshot) -> Surroundings:
        now, size = time.time(), self._console.size
        pane = pane_text(self._state, run, self._lines, now)
        page = max(3, size.height * 2 // 3 - 6)
        most = most_scroll(pane, size.width, page) if pane is not None else 0
        return Surroundings(run=run, now=now, page=page, most=most, attached=self._attached)

    async def _do(self, act: Act, scope: trio.CancelScope) -> None:
        match act:
            case Leave():
                self.left = True
                scope.cancel()
            case Postpone():
                self.postponed()
            case OpenPage():
                self._say(await trio.to_thread.run_sync(self._open_page))
            case Send():
                self._say("asking the run …")
                self._say(await trio.to_thread.run_sync(self._send, act))

    def _say(self, message: str) -> None:
        self._state = replace(self._state, message=message)
        self._stale.set()

    def _send(self, act: Send) -> str:
        """Ask the run as any other process does; return what became of it."""
        from runner.run.control.steering import Steering

        try:
            reply = Steering(self._directory).send(act.request)
        except RunnerError as error:
            return error.message
        return act.done if reply.taken else "the run has not answered yet; look again in a moment"

    def _open_page(self) -> str:
        """Start the page as a process of its own, which opens the browser; return what is to be seen."""
        from isolation.paths import find_repository
        from runner.run.control.launch import launch
        from runner.serve.web.access.address import read_address

        common_dir = find_repository(self._directory).common_dir
        try:
            # A page that is served already is opened. One that is started here ends with this process.
            page = launch(self._directory, ["web", "--open", "--while", str(os.getpid())])
        except OSError as error:
            return f"the page has not started: {error.strerror}"
        deadline = time.monotonic() + PAGE_SECONDS
        while time.monotonic() < deadline:
            if (served := read_address(common_dir)) is not None:
                return f"page: {served.url}"
            if not page.alive:
                break
            time.sleep(PAGE_POLL_SECONDS)
        return f"the page has not started; see {page.log}"

    async def _read(self) -> None:
        """Keep the content of a log or a diff current while it is open."""
        from runner.cli.live.content import Content

        while True:
            run, state = self._run, self._state
            if run is not None and state.pane in {Pane.LOG, Pane.DIFF} and chosen(state, run) is not None:
                if self._content is None:
                    self._content = await trio.to_thread.run_sync(Content, self._directory)
                lines = await trio.to_thread.run_sync(self._content.lines, state, run)
                now = self._state
                if (now.pane, now.selected) == (state.pane, state.selected) and lines != self._lines:
                    self._lines = lines
                    self._stale.set()
            stale = self._stale
            with trio.move_on_after(REFRESH_SECONDS if state.pane is not Pane.DIFF else 1.0):
                await stale.wait()

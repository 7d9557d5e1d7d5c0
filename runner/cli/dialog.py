"""Ask the user for decisions at a terminal without a dashboard, one at a time, in the order they came up.

Reading from the terminal never blocks the run and can be cancelled at any time. A question that is
postponed or not confirmed stays open for `autopilot-multi decide`; nothing is answered automatically.
"""

import os
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from runner.cli.live.terminal import FOREGROUND_SECONDS, in_foreground
from runner.cli.output import Output
from runner.core import choose
from runner.core.errors import NotFoundError
from runner.core.model import RunSnapshot, Status, StorySnapshot
from runner.story.context.error_groups import unwrapped
from runner.story.flow.decisions import (
    AlreadyAnsweredError,
    OpenQuestion,
    answer_event,
    is_open,
    last_answer,
    open_questions,
)

if TYPE_CHECKING:
    from runner.core.notices.notice import Notice
    from runner.run.interaction import LiveRun, Ring

BELL = "\a"
CHUNK = 4096


def open_dialog(output: Output) -> "TerminalDialog | None":
    """Return a dialog if a user can answer at this terminal, else None."""
    if output.quiet or output.as_json:
        return None
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    descriptor = sys.stdin.fileno()
    return TerminalDialog(source=descriptor) if in_foreground(descriptor) else None


def bell_for(dialog: object | None) -> "Ring":
    """Return what rings the bell of this terminal; a dialog rings for its questions itself."""
    from runner.core.setting_groups.notify_settings import NoticeKind

    def ring(notice: "Notice") -> None:
        if sys.stderr.isatty() and (dialog is None or notice.kind is not NoticeKind.QUESTION):
            _to_stderr(BELL)

    return ring


class TerminalDialog:
    """Asks the user at the terminal; one instance per run."""

    def __init__(self, *, source: int = 0, write: Callable[[str], None] | None = None) -> None:
        self._lines = _Lines(source)
        self._screen = write or _to_stderr
        self._scope = trio.CancelScope()
        self._postponed: set[str] = set()
        self._closed = False

    def waits(self, run: RunSnapshot) -> bool:
        """Return whether a question is still open at this terminal; the run must not end then."""
        return any(self._is_for_me(story) for story in run.open_decisions)

    def close(self) -> None:
        """Stop asking, and cancel the question on the screen."""
        self._closed = True
        self._scope.cancel()

    async def serve(self, run: "LiveRun") -> None:
        """Ask open questions until cancelled, closed, or the terminal is gone."""
        with self._scope, unwrapped():
            while not self._closed:
                if self._next(run.snapshot()) is None:
                    await run.changed()
                    continue
                run.pause()
                try:
                    while (asked := self._next(run.snapshot())) is not None:
                        await self._ask(run, asked)
                finally:
                    run.resume()

    def _next(self, run: RunSnapshot) -> OpenQuestion | None:
        if not self.waits(run):
            return None
        return next(asked for asked in open_questions(run) if self._is_for_me(run.stories[asked.story_id]))

    def _is_for_me(self, story: StorySnapshot) -> bool:
        # Only a parked story can continue with an answer.
        decision = story.decision if story.status is Status.PARKED and not self._closed else None
        return decision is not None and decision.id not in self._postponed

    async def _ask(self, run: "LiveRun", asked: OpenQuestion) -> None:
        """Show one question until it is answered or postponed, or the terminal is gone."""
        self._lines.forget()
        bell = BELL if run.bell else ""
        self._write(f"{bell}\n{_heading(run.snapshot(), asked)}\n{choose.render(asked.question)}\n")
        letters = "/".join(option.letter for option in asked.question.options)
        while (text := await self._read(run, asked, f"answer [{letters}, Enter for later]: ")) is not None:
            if not text.strip():
                self._later(run, asked)
                return
            try:
                event = answer_event(run.snapshot(), asked.story_id, text, decision_id=asked.decision_id)
            except choose.AnswerError as error:
                self._write(f"{error.message}\n{error.hint}\n")
                continue
            except (AlreadyAnsweredError, NotFoundError) as error:
                self._write(f"{error.message}\n")
                return
            if choose.must_confirm(asked.question, event.letter):
                sure = await self._read(run, asked, _confirmation(asked.question, event.letter))
                if sure is None:
                    return
                if sure.strip().lower() not in {"y", "yes"}:
                    self._write("not decided\n")
                    continue
            await run.answer(event)
            return

    def _write(self, text: str) -> None:
        with suppress(OSError):  # losing the terminal must not end the run
            self._screen(text)

    async def _read(self, run: "LiveRun", asked: OpenQuestion, prompt: str) -> str | None:
        """Read one line; None if the terminal is gone, or the question was answered elsewhere."""
        self._write(prompt)
        line: str | None = None
        elsewhere = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_answered, run, asked, nursery.cancel_scope)
                line = await self._lines.receive()
                elsewhere = False
                nursery.cancel_scope.cancel()
        finally:
            if line is None:
                self._write("\n")  # the cursor is still behind the prompt
        if elsewhere:
            self._write(_elsewhere(run.snapshot(), asked))
        elif line is None:
            self._closed = True
            self._write("end of input; answer later with `autopilot-multi decide`\n")
            run.postponed()
        return line

    def _later(self, run: "LiveRun", asked: OpenQuestion) -> None:
        self._postponed.add(asked.decision_id)
        self._write(
            f"postponed: story {asked.story_id} stays parked; answer it with "
            f"`autopilot-multi decide {asked.story_id} LETTER`\n"
        )
        run.postponed()


class _Lines:
    """The lines that the user types; waiting for one does not block the run and can be cancelled."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""

    def forget(self) -> None:
        """Drop what was typed before the question: it cannot be the answer."""
        self._buffer = b""
        if in_foreground(self._descriptor):
            with suppress(termios.error, OSError):
                termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def receive(self) -> str | None:
        """Return the next line without its line ending; None at the end of input."""
        while b"\n" not in self._buffer:
            await trio.lowlevel.wait_readable(self._descriptor)
            if not in_foreground(self._descriptor):
                # In the background the shell gets the input; reading would suspend the program (SIGTTIN).
                await trio.sleep(FOREGROUND_SECONDS)
                continue
            try:
                chunk = os.read(self._descriptor, CHUNK)
            except OSError:
                chunk = b""  # the terminal was closed
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")


async def _until_answered(run: "LiveRun", asked: OpenQuestion, scope: trio.CancelScope) -> None:
    while is_open(run.snapshot(), asked.story_id, asked.decision_id):
        await run.changed()
    scope.cancel()


def _heading(run: RunSnapshot, asked: OpenQuestion) -> str:
    others = len(run.open_decisions) - 1
    more = f" ({others} more open)" if others else ""
    return f"story {asked.story_id} asks{more}:"


def _confirmation(question: choose.Question, letter: str) -> str:
    warning = f"{question.warning}\n" if question.warning else ""
    return f"{warning}{letter}) {question.option(letter).text}: are you sure? [y/N]: "


def _elsewhere(run: RunSnapshot, asked: OpenQuestion) -> str:
    decision = last_answer(run, asked.story_id, asked.decision_id)
    what = f": {decision.letter}) {asked.question.option(decision.letter).text}" if decision else ""
    return f"story {asked.story_id} was answered elsewhere{what}\n"


def _to_stderr(text: str) -> None:
    # sys.stderr is looked up on every call: the dashboard replaces it while it is drawn.
    sys.stderr.write(text)
    sys.stderr.flush()

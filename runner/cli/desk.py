"""Where a person answers while a run goes on: one question at a time, in the order they were asked.

The desk reads lines from the terminal without holding up the run, and can be cancelled at any moment.
It never answers by itself: what is put off, or not confirmed, stays open for `autopilot-multi decide`.
"""

import os
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from runner.cli.output import Output
from runner.core import choose
from runner.core.errors import NotFoundError
from runner.core.model import RunSnapshot, Status, StorySnapshot
from runner.story.context.error_groups import unwrapped
from runner.story.decisions import (
    AlreadyAnsweredError,
    OpenQuestion,
    answer_event,
    is_open,
    last_answer,
    open_questions,
)

if TYPE_CHECKING:
    from runner.run.interaction import LiveRun

BELL = "\a"
FOREGROUND_SECONDS = 0.2
CHUNK = 4096


def choose_desk(output: Output, *, events: bool) -> "TerminalDesk | None":
    """Give a desk where a person sits at a terminal and wants to be talked to."""
    if events or output.quiet or output.as_json:
        return None
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    descriptor = sys.stdin.fileno()
    return TerminalDesk(source=descriptor) if _in_foreground(descriptor) else None


class TerminalDesk:
    """Asks the person at the terminal; one instance a run."""

    def __init__(self, *, source: int = 0, write: Callable[[str], None] | None = None) -> None:
        self._lines = _Lines(source)
        self._screen = write or _to_stderr
        self._scope = trio.CancelScope()
        self._put_off: set[str] = set()
        self._closed = False

    def waits(self, run: RunSnapshot) -> bool:
        """Tell whether a question is still to be answered here: a run that ended now would cut it off."""
        return any(self._is_for_me(story) for story in run.open_decisions)

    def close(self) -> None:
        """Ask nothing any more, and take back what is being asked."""
        self._closed = True
        self._scope.cancel()

    async def serve(self, run: "LiveRun") -> None:
        """Ask whatever is open until cancelled, closed, or there is nobody to answer."""
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
        # A story that is not parked yet, or was stopped, could not go on with an answer.
        decision = story.decision if story.status is Status.PARKED and not self._closed else None
        return decision is not None and decision.id not in self._put_off

    async def _ask(self, run: "LiveRun", asked: OpenQuestion) -> None:
        """Show one question and stay with it until it is answered, put off, or nobody can answer."""
        self._lines.forget()
        self._write(f"{BELL}\n{_heading(run.snapshot(), asked)}\n{choose.render(asked.question)}\n")
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
                    self._write("nothing was decided\n")
                    continue
            await run.answer(event)
            return

    def _write(self, text: str) -> None:
        with suppress(OSError):  # a terminal that is gone shows nothing, and must not end the run
            self._screen(text)

    async def _read(self, run: "LiveRun", asked: OpenQuestion, prompt: str) -> str | None:
        """Read one line; None when nobody can give it, or the answer came from elsewhere."""
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
                self._write("\n")  # the prompt still stands at the end of its line
        if elsewhere:
            self._write(_elsewhere(run.snapshot(), asked))
        elif line is None:
            self._closed = True
            self._write("nobody answers here any more; `autopilot-multi decide` takes the answers later\n")
            run.postponed()
        return line

    def _later(self, run: "LiveRun", asked: OpenQuestion) -> None:
        self._put_off.add(asked.decision_id)
        self._write(
            f"later: story {asked.story_id} stays parked; `autopilot-multi decide {asked.story_id} "
            "LETTER` answers it\n"
        )
        run.postponed()


class _Lines:
    """Lines that a person types; waiting for one holds up nobody and can be cancelled."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""

    def forget(self) -> None:
        """Drop what was typed before there was a question: it cannot be the answer."""
        self._buffer = b""
        if _in_foreground(self._descriptor):
            with suppress(termios.error, OSError):
                termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def receive(self) -> str | None:
        """Give the next line without its end; None when there will be no more."""
        while b"\n" not in self._buffer:
            await trio.lowlevel.wait_readable(self._descriptor)
            if not _in_foreground(self._descriptor):
                # What is typed now is meant for the shell; reading it would stop the whole program.
                await trio.sleep(FOREGROUND_SECONDS)
                continue
            try:
                chunk = os.read(self._descriptor, CHUNK)
            except OSError:
                chunk = b""  # the terminal was hung up
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
    return f"story {asked.story_id} has its answer from elsewhere{what}\n"


def _in_foreground(descriptor: int) -> bool:
    """Tell whether what is typed is ours; a terminal that controls no job of ours always is."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return True


def _to_stderr(text: str) -> None:
    # Looked up anew each time: a dashboard stands in for it while it is drawn.
    sys.stderr.write(text)
    sys.stderr.flush()

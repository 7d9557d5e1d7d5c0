"""The dialog: questions in a real terminal while a run is active."""

import os
import pty
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
import trio.testing

from runner.cli.dialog import TerminalDialog
from runner.core import choose
from runner.core.events import events as ev
from runner.core.model import RunSnapshot, Status, StoryId
from runner.records.event_log import EventLog
from runner.records.journal import Journal
from runner.run.interaction import LiveRun
from tests.records.sample_runs import RUN, event, snapshot, started
from tests.report.asking import COLOUR, OVERWRITE, answered, asks


class FakeRun(LiveRun):
    """A run with a real event log and a real journal, which records pauses and postponed questions."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.screen: list[str] = []
        self.postponements = 0
        self.given_up = trio.Event()
        super().__init__(
            log,
            answer=self._record,
            postponed=self._postpone,
            pause=lambda: self.screen.append("pause"),
            resume=lambda: self.screen.append("resume"),
        )

    async def _record(self, answer: ev.DecisionAnswered) -> None:
        """Record it and requeue the story, together."""
        await self.log.record(answer, ev.StoryRequeued(story_id=answer.story_id))

    def _postpone(self) -> None:
        """Count a postponed question."""
        self.postponements += 1
        self.given_up.set()


@dataclass(slots=True)
class Terminal:
    """A pseudo-terminal: types for the user and reads what the dialog prints."""

    master: int
    slave: int
    seen: str = ""
    taken: int = 0

    def write(self, text: str) -> None:
        """Print like the program."""
        os.write(self.slave, text.encode())

    def type(self, text: str) -> None:
        """Type like a user."""
        os.write(self.master, text.encode())

    async def expect(self, text: str) -> str:
        """Read until `text` appears; return what was printed before it."""
        while (at := self.seen.find(text, self.taken)) < 0:
            await trio.lowlevel.wait_readable(self.master)
            self.seen += os.read(self.master, 65536).decode().replace("\r\n", "\n")
        before, self.taken = self.seen[self.taken : at], at + len(text)
        return before


@contextmanager
def open_terminal() -> Iterator[Terminal]:
    master, slave = pty.openpty()
    terminal = Terminal(master=master, slave=slave)
    try:
        yield terminal
    finally:
        for descriptor in {terminal.master, slave} - {-1}:
            os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A dialog with its terminal and its run."""

    terminal: Terminal
    live: FakeRun
    dialog: TerminalDialog

    @property
    def run(self) -> RunSnapshot:
        """The current state of the run."""
        return self.live.snapshot()

    async def record(self, events: list[ev.Event]) -> None:
        """Record events of the run."""
        await self.live.log.record(*(one.body for one in events))

    async def answered(self, name: str) -> str:
        """Wait until a story is answered; return the letter."""
        while not (story := self.run.stories[StoryId(name)]).decision or not story.decision.letter:
            await self.live.changed()
        return story.decision.letter


@asynccontextmanager
async def serving(path: Path, events: list[ev.Event]) -> AsyncIterator[Scene]:
    """Run a dialog inside a block."""
    with trio.fail_after(20), open_terminal() as terminal, Journal.open(path / "journal.db") as journal:
        journal.append(events)
        live = FakeRun(EventLog(store=journal, snapshot=snapshot(journal.events(RUN))))
        dialog = TerminalDialog(source=terminal.slave, write=terminal.write)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dialog.serve, live)
            yield Scene(terminal=terminal, live=live, dialog=dialog)
            nursery.cancel_scope.cancel()
        assert live.screen.count("pause") == live.screen.count("resume"), "the view is always resumed"


PROMPT = "answer [A/B, Enter for later]: "


async def test_the_dialog_rings_shows_the_question_and_records_the_answer(tmp_path: Path) -> None:
    """Acceptance 61 and 63: bell, the exact form, one answer in the journal; the story continues."""
    async with serving(tmp_path, [started("a"), *asks("a", 1, COLOUR)]) as scene:
        printed = await scene.terminal.expect(PROMPT)
        assert printed == f"\a\nstory a asks:\n{choose.render(COLOUR)}\n"
        assert scene.live.screen == ["pause"]
        assert scene.dialog.waits(scene.run)
        scene.terminal.type("a\n")
        assert await scene.answered("a") == "A"
        assert scene.run.stories[StoryId("a")].status is Status.QUEUED
        assert not scene.dialog.waits(scene.run)
        await trio.testing.wait_all_tasks_blocked()
        assert scene.live.screen == ["pause", "resume"]
    with Journal.open(tmp_path / "journal.db") as journal:
        answers = [one.body for one in journal.events(RUN) if isinstance(one.body, ev.DecisionAnswered)]
    assert [(one.decision_id, one.letter, one.by) for one in answers] == [("a-1", "A", "person")]


async def test_several_stories_form_one_queue(tmp_path: Path) -> None:
    """The next question follows the answer to the previous one; later ones join the end of the queue."""
    async with serving(tmp_path, [started("a", "b", "c"), *asks("b", 1, COLOUR)]) as scene:
        assert "story b asks" in await scene.terminal.expect(PROMPT)
        await scene.record(asks("c", 2, COLOUR))
        await scene.record(asks("a", 3, COLOUR))
        scene.terminal.type("A\n")
        assert "story c asks (1 more open):" in await scene.terminal.expect(PROMPT)
        scene.terminal.type("B\n")
        assert "story a asks:" in await scene.terminal.expect(PROMPT)
        scene.terminal.type("A\n")
        assert [await scene.answered(name) for name in ("b", "c", "a")] == ["A", "B", "A"]
        assert scene.live.screen.count("pause") == 1, "the view stays paused between questions"


async def test_an_invalid_answer_is_explained_and_asked_again(tmp_path: Path) -> None:
    """A wrong letter costs nothing."""
    async with serving(tmp_path, [started("a"), *asks("a", 1, COLOUR)]) as scene:
        await scene.terminal.expect(PROMPT)
        scene.terminal.type("C\n")
        printed = await scene.terminal.expect(PROMPT)
        assert "'C' is not an answer to: Red or blue?\nanswer with A or B." in printed
        assert scene.run.open_decisions
        scene.terminal.type("B\n")
        assert await scene.answered("a") == "B"


async def test_enter_postpones_the_question(tmp_path: Path) -> None:
    """The story stays parked, is not asked again in this run, and the others are."""
    async with serving(tmp_path, [started("a", "b"), *asks("a", 1, COLOUR), *asks("b", 2, COLOUR)]) as scene:
        await scene.terminal.expect(PROMPT)
        scene.terminal.type("\n")
        assert "autopilot-multi decide a LETTER" in await scene.terminal.expect("story b asks")
        await scene.terminal.expect(PROMPT)
        scene.terminal.type("A\n")
        assert await scene.answered("b") == "A"
        await scene.record([event(5, ev.Noted(message="something else happens"))])
        await trio.testing.wait_all_tasks_blocked()
        assert [story.id for story in scene.run.open_decisions] == ["a"]
        assert not scene.dialog.waits(scene.run), "nothing keeps the run from ending"
        assert scene.live.postponements == 1


async def test_only_destructive_choices_are_confirmed(tmp_path: Path) -> None:
    """Acceptance 63: anything but `y` asks again; `y` decides; a harmless option needs no confirmation."""
    events = [started("a", "b"), *asks("a", 1, OVERWRITE), *asks("b", 2, OVERWRITE)]
    async with serving(tmp_path, events) as scene:
        await scene.terminal.expect(PROMPT)
        scene.terminal.type("A\n")
        assert "This will overwrite files in _docs/02_tasks" in await scene.terminal.expect("[y/N]: ")
        scene.terminal.type("\n")
        assert "not decided" in await scene.terminal.expect(PROMPT)
        scene.terminal.type("A\n")
        await scene.terminal.expect("[y/N]: ")
        assert scene.run.stories[StoryId("a")].status is Status.PARKED
        scene.terminal.type("y\n")
        assert await scene.answered("a") == "A"
        await scene.terminal.expect(PROMPT)
        scene.terminal.type("B\n")
        assert await scene.answered("b") == "B"


async def test_input_before_the_question_is_dropped(tmp_path: Path) -> None:
    """A stray Enter while the dashboard is shown does not postpone anything."""
    async with serving(tmp_path, [started("a")]) as scene:
        scene.terminal.type("\nA\n")
        await trio.testing.wait_all_tasks_blocked()
        await scene.record(asks("a", 1, COLOUR))
        await scene.terminal.expect(PROMPT)
        await trio.testing.wait_all_tasks_blocked()
        assert scene.run.open_decisions
        assert scene.live.postponements == 0
        scene.terminal.type("B\n")
        assert await scene.answered("a") == "B"


async def test_only_parked_stories_are_asked_about(tmp_path: Path) -> None:
    """A story that is still closing its workspace cannot continue with an answer; it is asked later."""
    asked, parked = asks("a", 1, COLOUR)
    async with serving(tmp_path, [started("a"), asked]) as scene:
        await trio.testing.wait_all_tasks_blocked()
        assert scene.live.screen == []
        await scene.record([parked])
        assert "story a asks:" in await scene.terminal.expect(PROMPT)


async def test_an_answer_from_elsewhere_cancels_the_question(tmp_path: Path) -> None:
    """`decide` in another terminal was faster: the dialog says so and asks the next question."""
    async with serving(tmp_path, [started("a", "b"), *asks("a", 1, COLOUR), *asks("b", 2, COLOUR)]) as scene:
        await scene.terminal.expect(PROMPT)
        await scene.record([answered("a", 3, "B")])
        printed = await scene.terminal.expect("story b asks")
        assert "story a was answered elsewhere: B) Blue" in printed
        await scene.terminal.expect(PROMPT)
        scene.terminal.type("A\n")
        assert await scene.answered("b") == "A"


async def test_the_end_of_the_input_postpones_all_questions(tmp_path: Path) -> None:
    """Ctrl-D: the stories stay parked, the run may end, and nothing more is asked."""
    async with serving(tmp_path, [started("a", "b"), *asks("a", 1, COLOUR)]) as scene:
        await scene.terminal.expect(PROMPT)
        scene.terminal.type("\x04")
        await scene.terminal.expect("end of input")
        await scene.live.given_up.wait()
        assert not scene.dialog.waits(scene.run)
        await scene.record(asks("b", 2, COLOUR))
        assert not scene.dialog.waits(scene.run)
        assert len(scene.run.open_decisions) == 2


async def test_a_closed_terminal_postpones_all_questions(tmp_path: Path) -> None:
    """Closing the window is not an error."""
    async with serving(tmp_path, [started("a"), *asks("a", 1, COLOUR)]) as scene:
        await scene.terminal.expect(PROMPT)
        os.close(scene.terminal.master)
        scene.terminal.master = -1
        await scene.live.given_up.wait()
        assert not scene.dialog.waits(scene.run)


async def test_closing_the_dialog_cancels_the_question(tmp_path: Path) -> None:
    """A run that stops does not wait for the user; the question stays open."""
    async with serving(tmp_path, [started("a"), *asks("a", 1, COLOUR)]) as scene:
        await scene.terminal.expect(PROMPT)
        scene.dialog.close()
        await scene.terminal.expect("\n")
        assert not scene.dialog.waits(scene.run)
        assert scene.run.open_decisions
        await trio.testing.wait_all_tasks_blocked()
        assert scene.live.screen == ["pause", "resume"]


async def test_typing_slowly_does_not_block_the_run(tmp_path: Path) -> None:
    """Half a line has no effect until the line is complete."""
    async with serving(tmp_path, [started("a"), *asks("a", 1, COLOUR)]) as scene:
        await scene.terminal.expect(PROMPT)
        tty.setcbreak(scene.terminal.slave)  # every key is available immediately
        scene.terminal.type("B) ")
        await scene.record([event(2, ev.Noted(message="the run continues"))])
        assert scene.run.open_decisions
        scene.terminal.type("blue\n")
        assert await scene.answered("a") == "B"

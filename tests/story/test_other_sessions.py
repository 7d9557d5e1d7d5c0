"""What a story does about other sessions where the whole program cannot show it yet: the shared tree."""

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.paths import find_repository, sessions_dir
from runner.agents.command import CommandAgent
from runner.agents.workers import Worker, Workers
from runner.core import choose
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.events.story_json import to_json
from runner.core.model import Story, StoryId
from runner.core.settings import Settings
from runner.machine.registry import Registry
from runner.records.event_log import EventLog
from runner.story import other_sessions as neighbours
from runner.story.context.budget import BudgetLedger
from runner.story.context.context import RunContext, story_context
from runner.story.context.memory import MemoryMeter
from runner.story.context.stop import Level, StopControl
from runner.story.other_sessions import Others, check_others
from tests.machine.registering import another_session
from tests.records.sample_runs import RUN

STORY = Story(id=StoryId("a"), title="A", prompt="do a")


class Memory:
    """A journal that keeps nothing."""

    def append(self, events: Sequence[ev.Event]) -> None:
        """Take the events."""


def _tools(repo: Path, *, isolation: str) -> RunContext:
    begun = ev.Event(
        run_id=RUN,
        at=time.time(),
        body=ev.RunStarted(
            base="",
            isolation=isolation,
            enforcement="none",
            max_stories=1,
            options={},
            stories=(to_json(STORY),),
        ),
    )
    log = EventLog(store=Memory(), snapshot=fold(RUN, [begun]))
    settings = Settings(bg_isolation=isolation)
    return RunContext(
        repository=Repository.open(repo),
        keeper=cast("Any", None),  # nothing is started here
        log=log,
        control=StopControl(),
        settings=settings,
        meter=MemoryMeter(),
        budget=BudgetLedger(settings, lambda: log.snapshot),
        registry=Registry(find_repository(repo).common_dir),
        worktree_root=repo.parent / "trees",
        populate=trio.CapacityLimiter(1),
        deadline=0.0,
        write_crash=lambda _error: repo / "crash.log",
    )


class Person:
    """Remembers what was asked, and answers."""

    def __init__(self, tools: RunContext) -> None:
        self._log = tools.log
        self.asked: list[choose.Question] = []

    async def ask(self, question: choose.Question) -> None:
        """Take a question."""
        self.asked.append(question)

    async def answer(self, letter: str) -> None:
        """Choose for the newest question, as the pipeline records it."""
        name = f"a-{len(self.asked)}"
        form = choose.to_json(self.asked[-1])
        await self._log.record(
            ev.DecisionAsked(story_id=STORY.id, decision_id=name, question=form),
            ev.DecisionAnswered(story_id=STORY.id, decision_id=name, letter=letter, by="person"),
            ev.DecisionApplied(story_id=STORY.id, decision_id=name),
        )


async def held_up(story: Story, tools: RunContext, ask: Callable[[choose.Question], Awaitable[None]]) -> bool:
    """Check for others as the pipeline does; False when nothing is in the way."""
    found = await check_others(story_context(story, Workers(first=Worker(agent=CommandAgent())), tools))
    if isinstance(found, choose.Question):
        await ask(found)
    return found is not Others.CLEAR


async def test_in_one_tree_a_parallel_session_is_a_reason_to_ask(repo: Path) -> None:
    """Without a tree of its own a story is offered one; in its own worktree it just works."""
    with another_session(repo, "deep"):
        own = _tools(repo, isolation="worktree")
        assert not await held_up(STORY, own, Person(own).ask)
        shared = _tools(repo, isolation="none")
        person = Person(shared)
        assert await held_up(STORY, shared, person.ask)
    (question,) = person.asked
    assert question.kind is choose.QuestionKind.PROMOTION
    assert question.option(choose.MOVE_APART).text.startswith("Move this story into a worktree")
    assert question.recommendation == choose.MOVE_APART
    assert not await held_up(STORY, shared, person.ask), "it has ended"


async def test_go_on_all_the_same_holds_for_parallel_sessions_only(repo: Path) -> None:
    """It is said once and remembered; one that runs alone is another matter."""
    tools = _tools(repo, isolation="none")
    person = Person(tools)
    with another_session(repo, "deep", name="one"):
        assert await held_up(STORY, tools, person.ask)
        await person.answer(choose.CONTINUE_ANYWAY)
        assert not await held_up(STORY, tools, person.ask)
        with another_session(repo, "bootstrap", name="two"):
            assert await held_up(STORY, tools, person.ask)
    assert [question.kind for question in person.asked] == [
        choose.QuestionKind.PROMOTION,
        choose.QuestionKind.BLOCKED,
    ]


async def test_it_is_closed_is_not_go_on_all_the_same(repo: Path) -> None:
    """The second letter of the one question is not the second letter of the other."""
    tools = _tools(repo, isolation="none")
    person = Person(tools)
    with another_session(repo, "deep", name="one"):
        with another_session(repo, "bootstrap", name="two"):
            assert await held_up(STORY, tools, person.ask)
            await person.answer("B")
        assert await held_up(STORY, tools, person.ask)
    assert [question.kind for question in person.asked] == [
        choose.QuestionKind.BLOCKED,
        choose.QuestionKind.PROMOTION,
    ]


async def test_a_story_that_waits_does_not_ask_again_and_obeys_a_stop(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance 39: the wait ends with the stop, long before the next look."""
    monkeypatch.setattr(neighbours, "LOOK_SECONDS", 3600)
    tools = _tools(repo, isolation="worktree")
    person = Person(tools)
    with trio.fail_after(30), another_session(repo, "housekeeping"):
        assert await held_up(STORY, tools, person.ask)
        await person.answer(choose.WAIT_FOR_OTHERS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(held_up, STORY, tools, person.ask)
            await trio.testing.wait_all_tasks_blocked()
            tools.control.raise_story(STORY.id, Level.FINISH)
    assert len(person.asked) == 1
    (note,) = tools.log.snapshot.notes
    assert note.message.startswith("waits until this has ended: housekeeping session cleanup-1")


async def test_what_belongs_to_this_run_is_never_in_its_way(repo: Path) -> None:
    """Entries with the run's own id do not count, whatever their mode."""
    registry = Registry(find_repository(repo).common_dir)
    for name, run_id, in_the_way in (("own", RUN, False), ("other", "another", True)):
        registry.write(registry.entry(name, mode="housekeeping", now=time.time(), run_id=run_id))
        tools = _tools(repo, isolation="none")
        assert await held_up(STORY, tools, Person(tools).ask) is in_the_way


async def test_that_nobody_else_is_there_counts_for_a_second_and_others_never_do(
    repo: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Who begins after the look is seen by the next one; who was found is looked for each time."""
    del autojump_clock
    tools = _tools(repo, isolation="none")
    assert not await held_up(STORY, tools, Person(tools).ask)
    with another_session(repo, "housekeeping"):
        await trio.sleep(neighbours.ALONE_SECONDS * 0.9)
        assert not await held_up(STORY, tools, Person(tools).ask)
        await trio.sleep(neighbours.ALONE_SECONDS * 0.1)
        assert await held_up(STORY, tools, Person(tools).ask)
    assert not await held_up(STORY, tools, Person(tools).ask), "it has ended"


async def test_a_story_that_must_run_alone_always_looks_for_others(repo: Path) -> None:
    """Also when another story has just found that nobody is there: beside the run, others may start."""
    tools = _tools(repo, isolation="worktree")
    assert not await held_up(STORY, tools, Person(tools).ask)
    with another_session(repo, "deep"):
        assert not await held_up(STORY, tools, Person(tools).ask)
        assert await held_up(replace(STORY, mode="housekeeping"), tools, Person(tools).ask)


async def test_a_registry_that_cannot_be_read_is_noted_once_and_blocks_nothing(repo: Path) -> None:
    """A courtesy that fails costs no story."""
    folder = sessions_dir(find_repository(repo).common_dir)
    folder.parent.mkdir()
    folder.write_text("a file where the folder should be")
    tools = _tools(repo, isolation="worktree")
    for _ in range(2):
        assert not await held_up(STORY, tools, Person(tools).ask)
    (note,) = tools.log.snapshot.notes
    assert note.message.startswith("the registry of sessions cannot be read")

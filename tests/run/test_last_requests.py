"""A request that comes just before a run ends: it is acted upon or refused, never lost.

The orchestrator is held at the one instant that matters, so that nothing here depends on luck.
"""

import itertools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from isolation.paths import journal_path
from runner.agents.workers import Workers
from runner.core.errors import NotFoundError
from runner.core.events import events as ev
from runner.core.events.steering import RequestAnswered, StoriesAdded
from runner.core.events.story_json import to_json
from runner.core.model import RunId, RunSnapshot, Status, Story, StoryId
from runner.records.journal import Journal, Request
from runner.run.control.changes import ENDING, BacklogChanges
from runner.run.control.requests import Add, encode
from runner.run.control.steering import Steering
from runner.run.orchestrator import Orchestrator
from tests.acceptance.program import LIMIT, run, write_story, writes
from tests.run.test_orchestrator import Watcher, _run

A, B = StoryId("a"), StoryId("b")
LATE = Add(stories=(to_json(Story(id=B, title="b", prompt="", command=("/bin/sh", "-c", writes("b.txt")))),))


def ask(repo: Path, run_id: RunId) -> None:
    """Ask a run for the late story, as another process does."""
    with Journal.open_existing(journal_path(repo / ".git")) as journal:
        journal.add_request(run_id, *encode(LATE))


async def test_what_is_under_way_when_the_last_story_ends_is_done_first(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run sees that every story has ended, but a story is being added: it waits, and carries that out."""
    write_story(repo, "a", command=f"until test -f {tmp_path}/go; do sleep 0.02; done; {writes('a.txt')}")
    looked = threading.Event()
    settled, find = Orchestrator._settled, BacklogChanges._workers

    def look(self: Orchestrator) -> bool:
        answer = settled(self)
        stories = self._context.log.snapshot.stories
        if stories[A].status.final and not self._active.total():
            looked.set()
        return answer

    def slowly(self: BacklogChanges, stories: Sequence[Story]) -> Mapping[StoryId, Workers]:
        (tmp_path / "go").touch()
        assert looked.wait(LIMIT), "the orchestrator looks again when the last story has left"
        return find(self, stories)

    def react(event: ev.Event, run: RunSnapshot) -> None:
        if isinstance(event.body, ev.SessionStarted) and event.body.story_id == A:
            ask(repo, run.run_id)

    monkeypatch.setattr(Orchestrator, "_settled", look)
    monkeypatch.setattr(BacklogChanges, "_workers", slowly)
    ended = await _run(repo, Watcher(react))
    assert {story.id: story.status for story in ended.run.stories.values()} == {
        A: Status.DONE,
        B: Status.DONE,
    }


async def test_what_comes_after_the_last_look_is_refused(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has decided to end when it reads the request: it says so, and records no story."""
    write_story(repo, "a", command=f"until test -f {tmp_path}/go; do sleep 0.02; done; {writes('a.txt')}")
    closes, calls = threading.Event(), itertools.count()
    settled, read = Orchestrator._settled, Journal.requests_after

    def look(self: Orchestrator) -> bool:
        answer = settled(self)
        if answer:
            closes.set()
        return answer

    def late(self: Journal, run_id: RunId, last: int) -> Sequence[Request]:
        if next(calls) == 1:  # the first call only asks for the newest number
            (tmp_path / "go").touch()
            assert closes.wait(LIMIT), "the orchestrator has looked for the last time"
            ask(repo, run_id)
        return read(self, run_id, last)

    monkeypatch.setattr(Orchestrator, "_settled", look)
    monkeypatch.setattr(Journal, "requests_after", late)
    view = Watcher()
    ended = await _run(repo, view)
    (answer,) = (body for body in view.events if isinstance(body, RequestAnswered))
    assert answer.problem == ENDING
    assert not any(isinstance(body, StoriesAdded) for body in view.events)
    assert set(ended.run.stories) == {A}


def test_who_asks_a_run_that_has_ended_is_told_so(repo: Path) -> None:
    """Nobody reads the request any more: the sender hears that, and not that all is well."""
    write_story(repo, "a", command=writes("a.txt"))
    ended = run(repo, "--json")
    with pytest.raises(NotFoundError, match="ended before it could act on this"):
        Steering(repo).send(LATE, run_id=RunId(ended.data["run_id"]))

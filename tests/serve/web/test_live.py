"""What browsers are sent: what has changed, once for all; who does not read is dropped and harms nobody."""

import json
import time
from pathlib import Path
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from isolation.paths import journal_path
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.model import Status, StoryId
from runner.records.journal import Journal
from runner.serve.web.live import QUEUE, Hub, Watcher
from runner.serve.web.server import make_web
from runner.serve.web.source import Seen
from runner.serve.web.views import BoardView, Frame, StoryView, View, drawn
from tests.report.report_runs import NASTY, RUN, sample_report

BOARD = BoardView()


def write_run(repo: Path, stories: int = 12) -> list[ev.Event]:
    """Write a run with every verdict and hostile texts; return its events."""
    events = list(sample_report(stories).events)
    path = journal_path(repo / ".git")
    path.parent.mkdir(parents=True, exist_ok=True)
    with Journal.open(path) as journal:
        journal.append(events)
    return events


async def _next(watcher: Watcher) -> dict[str, Any]:
    with trio.fail_after(10):
        message = await watcher.receive.receive()
    told: dict[str, Any] = json.loads(message.removeprefix(b"data: "))
    return told


async def test_a_new_browser_gets_everything_and_then_what_changes(repo: Path) -> None:
    """Only the card that has changed is sent, to all that watch, and drawn once."""
    events = write_run(repo)
    web = make_web(repo)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(web.hub.run)
        first, second = web.hub.join(BOARD), web.hub.join(BOARD)
        whole = await _next(first)
        assert await _next(second) == whole
        cards = [name for name in whole["html"] if name.startswith("card-")]
        assert len(cards) == 12
        assert "<script>" not in json.dumps(whole), "whatever a story is called, it is text"
        assert "\\u001b" not in json.dumps(whole)
        run_id = events[0].run_id
        noted = ev.StoryStarted(story_id=StoryId("no-work-9"))
        with Journal.open_existing(journal_path(repo / ".git")) as journal:
            journal.append([ev.Event(run_id=run_id, at=time.time(), body=noted)])
        part = await _next(first)
        assert "card-no-work-9" in part["html"]
        assert "card-done-0" not in part["html"]
        assert await _next(second) == part
        nursery.cancel_scope.cancel()
    web.source.close()


def test_time_alone_changes_nothing_that_is_sent() -> None:
    """Browsers count the time of what runs by themselves; a card is not sent again each second for that."""
    events = sample_report(12).events
    begun = events[0].at
    run = fold(RUN, [event for event in events if event.at < begun + 40])
    working = [story.id for story in run.stories.values() if story.status is Status.RUNNING]
    seen = Seen(run=run, alive=True)
    now = begun + 41
    views: list[View] = [BOARD, *(StoryView(run="", story_id=name) for name in working)]
    for view in views:
        early, late = ({one.id: one.data for one in view.fragments(seen, at)} for at in (now, now + 70))
        assert early == late
    assert len(working) > 1
    shown = drawn(BOARD, seen, Frame(form=""))[f"card-{working[0]}"]
    assert 'data-since="' in shown


async def test_a_browser_that_does_not_read_is_dropped(repo: Path) -> None:
    """Its queue fills, its response ends, and the others go on."""
    hub = Hub(make_web(repo).source, Frame(form=""))
    slow, fast = hub.join(BOARD), hub.join(BOARD)
    topic = hub._topics[BOARD]
    for number in range(QUEUE + 1):
        for watcher in list(topic.watchers):
            if not watcher.offer(b"%d" % number):
                topic.watchers.discard(watcher)
        await fast.receive.receive()
    assert slow.scope.cancel_called
    assert not fast.scope.cancel_called
    assert hub.watchers == 1


async def test_nothing_is_read_while_nobody_watches(repo: Path) -> None:
    """The reader sleeps before the first browser has come and after the last has left."""
    write_run(repo)
    web = make_web(repo)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(web.hub.run)
        await wait_all_tasks_blocked()
        assert not web.source._followed
        watcher = web.hub.join(BOARD)
        await _next(watcher)
        assert web.source._followed
        web.hub.leave(BOARD, watcher)
        assert web.hub.watchers == 0
        assert not web.hub._topics
        nursery.cancel_scope.cancel()
    web.source.close()


async def test_a_log_is_followed_and_safe(repo: Path) -> None:
    """New lines of a session are sent as text without control characters, the old ones once."""
    events = write_run(repo)
    run_id = events[0].run_id
    log = repo / ".git" / "autopilot" / f"runs/{run_id}/done-0/02.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"first {NASTY}\n")
    web = make_web(repo)
    view = StoryView(run="", story_id=StoryId("done-0"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(web.hub.run)
        watcher = web.hub.join(view)
        whole = await _next(watcher)
        assert whole["log"]["from"] == 0
        (line,) = whole["log"]["lines"]
        assert line.startswith("first <script>")
        assert "\x1b" not in line
        with log.open("a") as file:
            file.write("second\nunfinished")
        part = await _next(watcher)
        assert part["log"] == {"from": 1, "lines": ["second"]}
        nursery.cancel_scope.cancel()
    web.source.close()

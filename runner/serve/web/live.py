"""Browsers that watch: one reader for all of them, and for each a short queue of what has changed.

The reader looks at the run a few times per second while somebody watches, and not at all otherwise. What
has changed is drawn once for all browsers of a page. One that does not read fast enough is dropped: its
queue is full, and the kernel ends its connection when nothing was taken for `WRITE_SECONDS`.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

import trio
from msgspec import Struct
from starlette.types import Receive, Scope, Send
from trio import to_thread

from runner.core.errors import RunnerError
from runner.core.text.screen import neutral
from runner.serve.web.log_view import LogTail
from runner.serve.web.source import Seen, Source
from runner.serve.web.views import Frame, StoryView, View

TICK_SECONDS = 0.25
IDLE_SECONDS = 1.0
"""How often a run is read that no process works on: a new one may start."""

BEAT_SECONDS = 15.0
WRITE_SECONDS = 10.0
QUEUE = 16
MOST_WATCHERS = 200


class Watcher:
    """One browser: its queue, and the scope that ends its response."""

    def __init__(self) -> None:
        self.fresh = True
        self.scope = trio.CancelScope()
        self._send, self.receive = trio.open_memory_channel[bytes](QUEUE)

    def offer(self, message: bytes) -> bool:
        """Queue a message; return whether there was room for it."""
        try:
            self._send.send_nowait(message)
        except (trio.WouldBlock, trio.BrokenResourceError):
            self.scope.cancel()
            return False
        return True


class Topic:
    """What several browsers watch together: a view, and what they have been sent of it."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.watchers: set[Watcher] = set()
        self._data: dict[str, Any] = {}
        self._html: dict[str, str] = {}
        self._lists: dict[str, list[str]] = {}
        self._log: LogTail | None = None

    def changes(self, seen: Seen, source: Source, frame: Frame) -> dict[str, Any]:
        """Draw what has changed since the last call. Blocking."""
        changed: dict[str, str] = {}
        current: dict[str, Any] = {}
        for one in self.view.fragments(seen, time.time()):
            current[one.id] = one.data
            if one.id not in self._data or self._data[one.id] != one.data:
                changed[one.id] = self._html[one.id] = str(one.draw(frame))
        self._html = {name: self._html[name] for name in current}
        self._data = current
        message: dict[str, Any] = {"html": changed} if changed else {}
        lists = dict(self.view.lists(seen))
        if lists != self._lists:
            self._lists = message["lists"] = lists
        if (log := self._log_changes(seen, source)) is not None:
            message["log"] = log
        return message

    def everything(self) -> dict[str, Any]:
        """Return all that a browser needs that has just come."""
        message: dict[str, Any] = {"html": self._html, "lists": self._lists}
        if self._log is not None:
            lines = list(self._log.lines)
            message["log"] = {"from": self._log.total - len(lines), "lines": lines, "whole": True}
        return message

    def _log_changes(self, seen: Seen, source: Source) -> dict[str, Any] | None:
        if not isinstance(self.view, StoryView):
            return None
        found = source.log_of(seen, self.view.story_id, self.view.session)
        if found is None:
            return None
        if self._log is None or self._log.path != found[0]:  # the next session has begun
            self._log = LogTail(*found)
            return {"from": 0, "lines": self._log.advance(), "whole": True}
        before = self._log.total
        lines = self._log.advance()
        return {"from": before, "lines": lines} if lines else None


class Hub:
    """Reads for all watchers, and tells them what has changed."""

    def __init__(self, source: Source, frame: Frame) -> None:
        self._source = source
        self._frame = frame
        self._topics: dict[View, Topic] = {}
        self._somebody = trio.Event()

    @property
    def watchers(self) -> int:
        """How many browsers watch now."""
        return sum(len(topic.watchers) for topic in self._topics.values())

    def join(self, view: View) -> Watcher:
        """Add a watcher; it is sent everything at first."""
        watcher = Watcher()
        self._topics.setdefault(view, Topic(view)).watchers.add(watcher)
        self._somebody.set()
        return watcher

    def leave(self, view: View, watcher: Watcher) -> None:
        """Forget a watcher, and what only it has looked at."""
        topic = self._topics.get(view)
        if topic is not None:
            topic.watchers.discard(watcher)
            if not topic.watchers:
                del self._topics[view]
        if not self._topics:
            self._somebody = trio.Event()

    async def run(self) -> None:
        """Read and tell, until cancelled."""
        while True:
            await self._somebody.wait()
            active = False
            for topic in list(self._topics.values()):
                active |= await self._serve(topic)
            await trio.sleep(TICK_SECONDS if active else IDLE_SECONDS)

    async def _serve(self, topic: Topic) -> bool:
        """Send what has changed to the watchers of a topic; return whether more will change soon."""
        try:
            news = await to_thread.run_sync(self._look, topic)
        except RunnerError as error:
            news = _News(part=_encoded({"problem": neutral(error.message)}))
        whole = b""
        for watcher in list(topic.watchers):
            if watcher.fresh and not whole:
                whole = _encoded(topic.everything())
            message = whole if watcher.fresh else news.part
            watcher.fresh = False
            if message and not watcher.offer(message):
                topic.watchers.discard(watcher)
        return news.active

    def _look(self, topic: Topic) -> "_News":
        seen = self._source.see(topic.view.run)
        if seen is None:
            return _News()
        frame = Frame(form=self._frame.form, run=topic.view.run)
        changes = topic.changes(seen, self._source, frame)
        part = _encoded({"at": time.time(), **changes}) if changes else b""
        return _News(part=part, active=seen.alive or bool(seen.landing_id))


class _News(Struct, frozen=True, kw_only=True):
    """What a look at a run has found."""

    part: bytes = b""
    active: bool = False


def _encoded(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(message, separators=(",", ":")).encode() + b"\n\n"


class Stream:
    """The response to a browser that watches: server-sent events until it leaves or is dropped."""

    def __init__(self, hub: Hub, view: View) -> None:
        self._hub = hub
        self._view = view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  ASGI
        """Send events."""
        headers: Sequence[tuple[bytes, bytes]] = [(b"content-type", b"text/event-stream; charset=utf-8")]
        watcher = self._hub.join(self._view)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*headers]})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_leaving, receive, watcher)
                with watcher.scope:
                    await self._send(watcher, send)
                nursery.cancel_scope.cancel()
        finally:
            self._hub.leave(self._view, watcher)

    @staticmethod
    async def _send(watcher: Watcher, send: Send) -> None:
        message = b"retry: 1000\n\n"
        while True:
            await send({"type": "http.response.body", "body": message, "more_body": True})
            message = b": \n\n"  # so that a connection that is gone is noticed
            with trio.move_on_after(BEAT_SECONDS):
                message = await watcher.receive.receive()


async def _leaving(receive: Receive, watcher: Watcher) -> None:
    """Wait until the browser has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    watcher.scope.cancel()

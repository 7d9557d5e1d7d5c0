"""What a worker has to say to its coordinator: batches that wait for an answer, lines, parts of logs, ends.

An answer to `listen` is kept until the next question shows that it has arrived, so nothing is lost on the way
and nothing is said twice.
"""

from collections.abc import Iterator
from pathlib import Path

import trio
from msgspec import Struct

from isolation.paths import autopilot_dir, story_dir
from runner.core.errors import JournalError
from runner.remote.cluster.wire.messages import Ack, Batch, Gone, Heard, Line, Listen, LogPart, Machine

TICK_SECONDS = 0.25
"""How often a worker looks whether lines and logs are worth an answer."""
PART = 256 << 10
"""How much of one log goes into one answer, so that a flood delays nothing else."""
BEHIND = 1 << 20
"""How far a log may be ahead of what was sent; a flood beyond that is left out."""
MOST_SENT = 16 << 20
"""How much of one log is sent at most."""


class FencedError(JournalError):
    """The story was placed elsewhere; what this worker does with it no longer counts."""


class _Waiting(Struct):
    batch: Batch
    answered: trio.Event
    sent: bool = False
    fenced: bool = False


class Outbox:
    """Collects what is new; `listen` hands it out."""

    def __init__(self, common_dir: Path, run_id: str, machine: Machine) -> None:
        self.machine = machine
        self.active = False
        self._common_dir = common_dir
        self._run_id = run_id
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        self._lines: dict[str, Line] = {}
        self._gone: list[Gone] = []
        self._notes: list[str] = []
        self._stories: set[str] = set()
        self._logs: dict[Path, int] = {}
        self._shift: dict[Path, int] = {}
        self._last: Heard | None = None
        self._urgent = trio.Event()
        self.heard_at = trio.current_time()

    def begin(self, story_id: str) -> None:
        """Send the logs of a story from now on."""
        self._stories.add(story_id)

    async def send(self, batch: Batch) -> None:
        """Have a batch recorded; raises FencedError if the story is no longer this worker's."""
        waiting = _Waiting(batch, trio.Event())
        self._waiting[batch.story_id, batch.fence] = waiting
        self._urgent.set()
        try:
            await waiting.answered.wait()
        finally:
            self._waiting.pop((batch.story_id, batch.fence), None)
        if waiting.fenced:
            raise FencedError(f"story {batch.story_id} was placed on another worker")

    def acknowledge(self, ack: Ack) -> None:
        """Note what became of a batch; one that is not waited for any more is left alone."""
        waiting = self._waiting.get((ack.story_id, ack.fence))
        if waiting is not None and waiting.batch.number == ack.number:
            waiting.fenced = ack.fenced
            waiting.answered.set()

    def fence(self, story_id: str, fence: int) -> None:
        """Refuse what a story that was placed elsewhere has to say."""
        waiting = self._waiting.get((story_id, fence))
        if waiting is not None and waiting.sent:
            waiting.fenced = True
            waiting.answered.set()

    def line(self, line: Line) -> None:
        """Keep the newest line of a story."""
        self._lines[line.story_id] = line

    def gone(self, gone: Gone) -> None:
        """Say that a story has left this worker."""
        self._gone.append(gone)
        self._urgent.set()

    def note(self, words: str) -> None:
        """Say something about this machine that the user should read."""
        self._notes.append(words)
        self._urgent.set()

    def start_over(self) -> None:
        """Say again what is not answered: another coordinator asks now."""
        self._last = None
        for waiting in self._waiting.values():
            waiting.sent = False
        self._logs.clear()
        self._shift.clear()
        self._urgent.set()

    async def listen(self, request: Listen) -> Heard:
        """Return what is new, as soon as there is something; the last answer again if it was lost.

        The same question may wait here twice, since nothing tells the first one that its connection broke.
        Whichever is answered first, both get that answer.
        """
        self.heard_at = trio.current_time()
        last = self._last
        if last is not None and request.number != last.number:
            return last
        with trio.move_on_after(request.wait):
            while self._last is last and not self._has_news():
                with trio.move_on_after(TICK_SECONDS):
                    await self._urgent.wait()
        self.heard_at = trio.current_time()
        if self._last is not None and self._last is not last:
            return self._last
        self._last = self._heard(request.number + 1)
        return self._last

    def _has_news(self) -> bool:
        if any(not waiting.sent for waiting in self._waiting.values()):
            return True
        if self._gone or self._lines or self._notes:
            return True
        return any(path.stat().st_size > self._logs.get(path, 0) for path in self._log_files())

    def _heard(self, number: int) -> Heard:
        self._urgent = trio.Event()
        logs = tuple(self._log_parts())
        fresh = [waiting for waiting in self._waiting.values() if not waiting.sent]
        for waiting in fresh:
            waiting.sent = True
        lines, self._lines = tuple(self._lines.values()), {}
        gone, self._gone = tuple(self._gone), []
        notes, self._notes = tuple(self._notes), []
        for each in gone:
            self._stories.discard(each.story_id)
        active, self.active = self.active, False
        return Heard(
            number=number,
            machine=self.machine,
            batches=tuple(waiting.batch for waiting in fresh),
            lines=lines,
            logs=logs,
            gone=gone,
            notes=notes,
            active=active or bool(fresh or lines),
        )

    def _log_files(self) -> Iterator[Path]:
        for story_id in self._stories:
            folder = story_dir(self._common_dir, self._run_id, story_id)
            if folder.is_dir():
                yield from (path for path in sorted(folder.glob("*.log")) if path.is_file())

    def _log_parts(self) -> Iterator[LogPart]:
        """Return the next part of each log; what a flood wrote in between is left out, and it says so."""
        top = autopilot_dir(self._common_dir)
        for path in self._log_files():
            size, begin = path.stat().st_size, self._logs.get(path, 0)
            if size <= begin:
                continue
            shift, note = self._shift.get(path, 0), b""
            if size - begin > BEHIND or begin - shift > MOST_SENT:
                jump = max(begin, size - PART)
                note = f"\n[autopilot-multi: {jump - begin:,} bytes are left out here]\n\n".encode()
                shift += jump - begin - len(note)
                begin = jump
            with path.open("rb") as file:
                file.seek(begin)
                data = file.read(PART)
            yield LogPart(
                name=path.relative_to(top).as_posix(),
                offset=begin - shift - len(note),
                data=note + data,
            )
            self._logs[path], self._shift[path] = begin + len(data), shift

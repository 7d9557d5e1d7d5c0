"""Show the output of a story's sessions, oldest first.

Terminal escape sequences are removed; --raw prints the original bytes. With -f the output is followed
until the story ends.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.cli.run_reader import CurrentRun, RunReader
    from runner.core.model import SessionRecord, StoryId, StorySnapshot

EXAMPLE = "autopilot-multi logs checkout-17 -f"

POLL_SECONDS = 0.2
CHUNK_BYTES = 1 << 16
RUNS_SEARCHED = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `logs`."""
    parser.add_argument("story", metavar="STORY", help="the id of the story")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing until the story ends")
    parser.add_argument(
        "--run",
        metavar="RUN",
        help="the id of a run or its first characters (default: the newest with the story)",
    )
    parser.add_argument("--session", metavar="N", type=int, help="only session number N of the story")
    parser.add_argument("--raw", action="store_true", help="print the original bytes")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the logs; with -f, follow them."""
    from runner.cli.run_reader import RunReader

    with RunReader(arguments.directory, arguments.run) as reader:
        story_id = _find_story(reader, arguments.story, named=bool(arguments.run))
        _require_session(reader.read().run.stories[story_id], arguments)
        printer = _Printer(reader, story_id, arguments)
        current = reader.read()
        while arguments.follow and not _ended(current, story_id):
            printer.advance(current)
            time.sleep(POLL_SECONDS)
            current = reader.read()
        if output.as_json:
            output.document(_document(reader, current, story_id, arguments.session))
            return 0
        printer.advance(current, last=True)
        story = current.run.stories[story_id]
        if not story.sessions:
            status = story.status.value.replace("_", " ")
            had = f"had no sessions: {story.reason}" if story.status.final else "has had no sessions yet"
            output.say(f"{story_id} is {status} and {had}")
    return 0


class _Printer:
    """Prints the logs of a story's sessions one after the other, each byte once."""

    def __init__(self, reader: "RunReader", story_id: "StoryId", arguments: argparse.Namespace) -> None:
        self._reader = reader
        self._story_id = story_id
        self._only: int | None = arguments.session
        self._silent: bool = arguments.json
        self._raw: bool = arguments.raw
        self._number = 1
        self._log: _GrowingLog | None = None

    def advance(self, current: "CurrentRun", *, last: bool = False) -> None:
        """Print what was added since the last call."""
        sessions = current.run.stories[self._story_id].sessions
        while not self._silent and self._number <= len(sessions):
            session = sessions[self._number - 1]
            over = last or session.ended_at is not None
            if self._only in {None, self._number}:
                if self._log is None:
                    self._log = _GrowingLog(self._reader.log_of(session), raw=self._raw)
                    self._title(session)
                self._log.print_new(last=over)
            if not over:
                return
            self._number, self._log = self._number + 1, None

    def _title(self, session: "SessionRecord") -> None:
        from runner.core.text.instants import clock
        from runner.core.text.screen import neutral

        if not self._raw and self._only is None:
            step = f"{neutral(session.step.name)}, attempt {session.attempt}"
            sys.stdout.write(f"--- session {self._number}: {step}, {clock(session.started_at)}\n")


class _GrowingLog:
    """A log file that is still being written; keeps an unfinished line, in bounded memory."""

    def __init__(self, path: Path, *, raw: bool) -> None:
        self._path = path
        self._raw = raw
        self._offset = 0
        self._held = b""

    def print_new(self, *, last: bool) -> None:
        """Print what was added since the last call; an unfinished line only if nothing more will come."""
        from runner.core.text.screen import neutral

        for chunk in self._chunks():
            if self._raw:
                sys.stdout.buffer.write(chunk)
                continue
            *lines, self._held = (self._held + chunk).split(b"\n")
            # A session may print megabytes without a line break.
            if len(self._held) > CHUNK_BYTES:
                lines, self._held = [*lines, self._held], b""
            for line in lines:
                sys.stdout.write(neutral(line.decode("utf-8", "replace")) + "\n")
        if last and self._held:
            sys.stdout.write(neutral(self._held.decode("utf-8", "replace")) + "\n")
            self._held = b""
        sys.stdout.flush()

    def _chunks(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as log:
                log.seek(self._offset)
                while chunk := log.read(CHUNK_BYTES):
                    self._offset += len(chunk)
                    yield chunk
        except FileNotFoundError:  # the session has started, but has not printed anything
            return


def _ended(current: "CurrentRun", story_id: "StoryId") -> bool:
    return current.over or current.run.stories[story_id].status.final


def _find_story(reader: "RunReader", name: str, *, named: bool) -> "StoryId":
    """Switch to the newest run that has the story, unless the user named a run."""
    from runner.core.errors import NotFoundError
    from runner.core.model import StoryId
    from runner.core.text.names import did_you_mean

    story_id, run_id = StoryId(name), reader.run_id
    known = reader.read().run.stories
    if story_id in known:
        return story_id
    for other in () if named else reader.journal.runs()[:RUNS_SEARCHED]:
        reader.follow(other)
        if story_id in reader.read().run.stories:
            return story_id
    hint = did_you_mean(name, known) or f"it has: {', '.join(known) or 'none'}."
    raise NotFoundError(f"run {run_id} has no story '{name}'", hint=hint)


def _require_session(story: "StorySnapshot", arguments: argparse.Namespace) -> None:
    from runner.core.errors import NotFoundError
    from runner.core.text.words import count

    number, there = arguments.session, len(story.sessions)
    if number is not None and (number < 1 or (number > there and not arguments.follow)):
        raise NotFoundError(
            f"story {story.id} has no session {number}",
            hint=f"it has {count(there, 'session')}, counted from 1.",
        )


def _document(
    reader: "RunReader", current: "CurrentRun", story_id: "StoryId", only: int | None
) -> dict[str, object]:
    from runner.core.text.instants import iso, iso_or_none

    entries = []
    for number, session in enumerate(current.run.stories[story_id].sessions, start=1):
        if only not in {None, number}:
            continue
        path = reader.log_of(session)
        entry = {
            "number": number,
            "id": session.id,
            "kind": session.kind.value,
            "step": {"number": session.step.number, "name": session.step.name},
            "attempt": session.attempt,
            "started_at": iso(session.started_at),
            "ended_at": iso_or_none(session.ended_at),
            "outcome": session.outcome.value if session.outcome else None,
            "log": str(path),
            "text": path.read_bytes().decode("utf-8", "replace") if path.exists() else "",
        }
        entries.append(entry)
    return {"run_id": current.run.run_id, "story_id": story_id, "sessions": entries}

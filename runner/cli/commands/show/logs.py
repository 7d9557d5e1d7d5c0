"""Show the output of a story's sessions, oldest first; or, with --base, of the verify commands on the base.

Terminal escape sequences are removed; --raw prints the original bytes. With -f the output is followed
until the story ends, or until the base has answered.
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
    from runner.core.model import BaseCheck, SessionRecord, StoryId, StorySnapshot

EXAMPLE = "autopilot-multi logs checkout-17 -f"

POLL_SECONDS = 0.2
CHUNK_BYTES = 1 << 16
RUNS_SEARCHED = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `logs`."""
    parser.add_argument("story", nargs="?", metavar="STORY", help="the id of the story")
    parser.add_argument(
        "--base",
        action="store_true",
        help="what the verify commands printed on the base before the first session",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing until the story ends")
    parser.add_argument(
        "--run",
        metavar="RUN",
        help="the id of a run or its first characters (default: the newest with the story)",
    )
    parser.add_argument(
        "--session", metavar="N", type=int, help="only session number N of the story, or command number N"
    )
    parser.add_argument("--raw", action="store_true", help="print the original bytes")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Print the logs; with -f, follow them."""
    from runner.cli.run_reader import RunReader
    from runner.core.errors import UsageError

    if arguments.base == bool(arguments.story):
        raise UsageError(
            "`logs` needs the id of a story, or --base",
            hint="`autopilot-multi status` lists the stories; --base is what ran before the first session.",
        )
    with RunReader(arguments.directory, arguments.run) as reader:
        if arguments.base:
            return _show_base(reader, arguments, output)
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


def _show_base(reader: "RunReader", arguments: argparse.Namespace, output: Output) -> int:
    """Print what was asked of the base: the hooks that prepared its worktree, then the commands."""
    current = reader.read()
    _require_check(current, arguments)
    printer = _BasePrinter(reader, arguments)
    while arguments.follow and not _base_answered(current):
        printer.advance(current)
        time.sleep(POLL_SECONDS)
        current = reader.read()
    if output.as_json:
        output.document(_base_document(reader, current, arguments.session))
        return 0
    printer.advance(current, last=True)
    if not current.run.base_checks and not reader.base_hooks():
        output.say(f"nothing was asked of the base of run {current.run.run_id}")
    return 0


class _BasePrinter:
    """Prints what the hooks and the commands printed on the base, each byte once."""

    def __init__(self, reader: "RunReader", arguments: argparse.Namespace) -> None:
        self._reader = reader
        self._only: int | None = arguments.session
        self._silent: bool = arguments.json
        self._raw: bool = arguments.raw
        self._hooks: dict[Path, _GrowingLog] = {}
        self._logs: dict[str, _GrowingLog] = {}

    def advance(self, current: "CurrentRun", *, last: bool = False) -> None:
        """Print what was added since the last call."""
        if self._silent:
            return
        for path in () if self._only else self._reader.base_hooks():
            if path not in self._hooks:
                self._title(path.stem.replace("-", " ", 1))
                self._hooks[path] = _GrowingLog(path, raw=self._raw)
            self._hooks[path].print_new(last=last or bool(current.run.base_checks))
        for number, check in enumerate(current.run.base_checks, start=1):
            if self._only not in {None, number}:
                continue
            if check.command not in self._logs:
                self._title(f"verify {number}: {_answer_words(check)}")
                self._logs[check.command] = _GrowingLog(self._reader.log_of(check), raw=self._raw)
            if check.log:
                self._logs[check.command].print_new(last=last or bool(check.answer))

    def _title(self, words: str) -> None:
        from runner.core.text.screen import neutral

        if not self._raw:
            sys.stdout.write(f"--- {neutral(words)}\n")


def _answer_words(check: "BaseCheck") -> str:
    if not check.answer:
        return f"`{check.command}`"
    answer = check.answer.replace("-", " ")
    return f"`{check.command}` {answer}{', as an earlier run found' if check.known else ''}"


def _base_answered(current: "CurrentRun") -> bool:
    """Whether no more is asked of the base: sessions run, and no command is left without an answer."""
    run = current.run
    begun = any(story.sessions for story in run.stories.values())
    return current.over or (begun and all(check.answer for check in run.base_checks))


def _require_check(current: "CurrentRun", arguments: argparse.Namespace) -> None:
    from runner.core.errors import NotFoundError
    from runner.core.text.words import count

    number, there = arguments.session, len(current.run.base_checks)
    if number is not None and (number < 1 or (number > there and not arguments.follow)):
        raise NotFoundError(
            f"the base of run {current.run.run_id} was not asked command {number}",
            hint=f"it was asked {count(there, 'command')}, counted from 1.",
        )


def _base_document(reader: "RunReader", current: "CurrentRun", only: int | None) -> dict[str, object]:
    from runner.core.text.instants import iso, iso_or_none

    checks = [
        {
            "number": number,
            "command": check.command,
            "answer": check.answer or None,
            "exit_code": check.exit_code,
            "known": check.known,
            "started_at": iso(check.started_at),
            "ended_at": iso_or_none(check.ended_at),
            "log": str(reader.log_of(check)) if check.log else None,
            "text": _text_of(reader.log_of(check)) if check.log else "",
        }
        for number, check in enumerate(current.run.base_checks, start=1)
        if only in {None, number}
    ]
    shown = () if only else reader.base_hooks()
    hooks = [{"log": str(path), "text": _text_of(path)} for path in shown]
    return {"run_id": current.run.run_id, "base": current.run.base, "hooks": hooks, "checks": checks}


def _text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""


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
            "text": _text_of(path),
        }
        entries.append(entry)
    return {"run_id": current.run.run_id, "story_id": story_id, "sessions": entries}

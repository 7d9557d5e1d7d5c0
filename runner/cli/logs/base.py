"""What `logs --base` prints: the hooks and verify commands that ran on the base before the first session."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.logs.growing import GrowingLog
from runner.cli.output import Output

if TYPE_CHECKING:
    from runner.core.progress.base import BaseCheck
    from runner.run.control.reader import CurrentRun, RunReader

POLL_SECONDS = 0.2


def show_base(reader: "RunReader", arguments: argparse.Namespace, output: Output) -> int:
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
        self._hooks: dict[Path, GrowingLog] = {}
        self._logs: dict[str, GrowingLog] = {}

    def advance(self, current: "CurrentRun", *, last: bool = False) -> None:
        """Print what was added since the last call."""
        if self._silent:
            return
        for path in () if self._only else self._reader.base_hooks():
            if path not in self._hooks:
                self._title(path.stem.replace("-", " ", 1))
                self._hooks[path] = GrowingLog(path, raw=self._raw)
            self._hooks[path].print_new(last=last or bool(current.run.base_checks))
        for number, check in enumerate(current.run.base_checks, start=1):
            if self._only not in {None, number}:
                continue
            if check.command not in self._logs:
                self._title(f"verify {number}: {_answer_words(check)}")
                self._logs[check.command] = GrowingLog(self._reader.log_of(check), raw=self._raw)
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
            "text": text_of(reader.log_of(check)) if check.log else "",
        }
        for number, check in enumerate(current.run.base_checks, start=1)
        if only in {None, number}
    ]
    shown = () if only else reader.base_hooks()
    hooks = [{"log": str(path), "text": text_of(path)} for path in shown]
    return {"run_id": current.run.run_id, "base": current.run.base, "hooks": hooks, "checks": checks}


def text_of(path: Path) -> str:
    """Return all that a log holds; empty if there is none."""
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""

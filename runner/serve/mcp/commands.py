"""Carries out a tool call by the command line of this very program, in a process of its own.

So a tool answers with the document that the command prints with `--json`, and with its errors; a command that
would ask at a terminal refuses here, since there is none. None of them can print into the protocol.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isolation.keeper.unconfined import run_unconfined
from runner.core.errors import RunnerError, SystemFaultError
from runner.core.text.screen import neutral
from runner.run.control.launch import Launched, launch, program_command

POLL_SECONDS = 0.1
_LONGEST_COMPLAINT = 2000


class CommandError(RunnerError):
    """A command has refused or failed; `kind` is the code of its own error."""

    def __init__(self, message: str, *, hint: str = "", kind: str = "error") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


def run_command(directory: Path, name: str, *arguments: str) -> dict[str, Any]:
    """Run a command to its end and return the data of its document; raise its error. Blocks."""
    ended = run_unconfined(_argv(directory, name, arguments), env=os.environ)
    return _data(name, ended.stdout.decode("utf-8", "replace"), ended.stderr.decode("utf-8", "replace"))


def text_of_command(directory: Path, name: str, *arguments: str) -> str:
    """Run a command to its end and return what it prints for people; raise its error. Blocks."""
    argv = [*program_command(), name, "-C", str(directory.absolute()), "--no-color", *arguments]
    ended = run_unconfined(argv, env=os.environ)
    if ended.returncode:
        run_command(directory, name, *arguments)  # raises, with the error as values
    return ended.stdout.decode("utf-8", "replace")


def start_command(directory: Path, name: str, *arguments: str) -> Launched:
    """Start a command that continues when this process ends. Blocks for an instant."""
    return launch(directory, (name, "--json", *arguments))


def document_of(name: str, launched: Launched) -> dict[str, Any]:
    """Return what a command that has ended printed as its document; raise its error."""
    try:
        printed = launched.log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SystemFaultError(f"cannot read {launched.log}: {error.strerror or error}") from error
    return _data(name, printed, printed)


def ends_within(launched: Launched, seconds: float) -> bool:
    """Whether a command ends within this time. Blocks."""
    deadline = time.monotonic() + seconds
    while launched.alive:
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _argv(directory: Path, name: str, arguments: Sequence[str]) -> list[str]:
    return [*program_command(), name, "-C", str(directory.absolute()), "--json", *arguments]


def _data(name: str, printed: str, complaint: str) -> dict[str, Any]:
    document = _document(printed)
    if document is None:
        words = neutral(complaint.strip()[-_LONGEST_COMPLAINT:]) or "it printed nothing"
        raise SystemFaultError(f"`autopilot-multi {name}` has not answered: {words}")
    error = document.get("error")
    if isinstance(error, dict):
        raise CommandError(
            str(error.get("message", "")),
            hint=str(error.get("hint", "")),
            kind=str(error.get("code", "error")),
        )
    data = document.get("data")
    return data if isinstance(data, dict) else {"answer": data}


def _document(printed: str) -> dict[str, Any] | None:
    """Return the last line that is a document; narration may stand around it."""
    for line in reversed(printed.splitlines()):
        if line.startswith('{"schema"'):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                return found
    return None
